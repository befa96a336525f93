// Lines across a chart, each with its name at the left end, where the curve has not begun or is far above.
import { css, fmt } from "./chart.js";

const DASHES = { onnxruntime: [10, 5], torch_compile: [6, 3, 1, 3], untuned: [3, 4], tuned: [14, 4, 2, 4] };
const COLOURS = { onnxruntime: "--base-b", torch_compile: "--base-b", untuned: "--base-a", tuned: "--curve-time" };
const TEXT = 13;

export const series = (lines) => lines.map((one) => ({
  label: one.name, stroke: css(COLOURS[one.key]), width: 2, dash: DASHES[one.key], points: { show: false }, value: () => "",
}));

// A plugin of uPlot: names that would lie on each other are moved apart.
export function names(lines) {
  return {
    hooks: {
      draw: [(u) => {
        const { ctx } = u, ratio = devicePixelRatio;
        const sorted = lines.map((one) => ({ ...one, at: u.valToPos(one.ms, "y", true) - 5 * ratio })).sort((a, b) => a.at - b.at);
        const apart = (TEXT + 3) * ratio;
        let above = u.bbox.top;
        for (const one of sorted) {
          one.at = Math.max(one.at, above + apart);
          above = one.at;
        }
        let below = u.bbox.top + u.bbox.height + apart - 4 * ratio;
        for (const one of sorted.reverse()) {
          one.at = Math.min(one.at, below - apart);
          below = one.at;
        }
        ctx.save();
        ctx.font = `600 ${TEXT * ratio}px ${getComputedStyle(document.body).fontFamily}`;
        ctx.textAlign = "left";
        ctx.textBaseline = "alphabetic";
        ctx.lineJoin = "round";
        for (const one of sorted) {
          const x = u.bbox.left + 6 * ratio, room = u.bbox.width - 8 * ratio;
          const whole = `${one.name}: ${fmt(one.ms)}`;
          const text = ctx.measureText(whole).width <= room ? whole : `${one.name.split(",")[0]}: ${fmt(one.ms)}`;
          ctx.strokeStyle = css("--card");
          ctx.lineWidth = 5 * ratio;
          ctx.strokeText(text, x, one.at);
          ctx.fillStyle = css(COLOURS[one.key]);
          ctx.fillText(text, x, one.at);
        }
        ctx.restore();
      }],
    },
  };
}
