// Horizontal lines of baselines across a chart. Their names are at the left end, where the curve has not begun or is far above.
import { css, fmt } from "./chart.js";

const DASHES = { onnxruntime: [10, 5], openvino: [8, 3], openvino_default: [8, 3, 2, 3], litert: [4, 2], torch_compile: [6, 3, 1, 3], untuned: [3, 4], tuned: [14, 4, 2, 4] };
const COLOURS = { onnxruntime: "--base-b", openvino: "--base-b", openvino_default: "--base-b", litert: "--base-b", torch_compile: "--base-b", untuned: "--base-a", tuned: "--curve-time" };
const TEXT = 13;

export const series = (baselines) => baselines.map((baseline) => ({
  label: baseline.name, stroke: css(COLOURS[baseline.key]), width: 2, dash: DASHES[baseline.key], points: { show: false }, value: () => "",
}));

// A plugin of uPlot that writes the baselines' names, and moves overlapping names apart.
export function names(baselines) {
  return {
    hooks: {
      draw: [(u) => {
        const { ctx } = u, ratio = devicePixelRatio;
        const labels = baselines.map((baseline) => ({ ...baseline, y: u.valToPos(baseline.ms, "y", true) - 5 * ratio })).sort((a, b) => a.y - b.y);
        const apart = (TEXT + 3) * ratio;
        let above = u.bbox.top;
        for (const label of labels) {
          label.y = Math.max(label.y, above + apart);
          above = label.y;
        }
        let below = u.bbox.top + u.bbox.height + apart - 4 * ratio;
        for (const label of labels.reverse()) {
          label.y = Math.min(label.y, below - apart);
          below = label.y;
        }
        ctx.save();
        ctx.font = `600 ${TEXT * ratio}px ${getComputedStyle(document.body).fontFamily}`;
        ctx.textAlign = "left";
        ctx.textBaseline = "alphabetic";
        ctx.lineJoin = "round";
        for (const label of labels) {
          const x = u.bbox.left + 6 * ratio, room = u.bbox.width - 8 * ratio;
          const full = `${label.name}: ${fmt(label.ms)}`;
          const text = ctx.measureText(full).width <= room ? full : `${label.name.split(",")[0]}: ${fmt(label.ms)}`;
          ctx.strokeStyle = css("--card");
          ctx.lineWidth = 5 * ratio;
          ctx.strokeText(text, x, label.y);
          ctx.fillStyle = css(COLOURS[label.key]);
          ctx.fillText(text, x, label.y);
        }
        ctx.restore();
      }],
    },
  };
}
