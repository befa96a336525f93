// Estimates the trials or the time of a budget, from the pace of the pool's last jobs.
const count = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const time = (minutes) => minutes < 90 ? amount(Math.max(minutes, 0.1), "minute") : amount(minutes / 60, "hour");
const amount = (value, unit) => `${count.format(value)} ${unit}${count.format(value) === "1" ? "" : "s"}`;

function estimate() {
  const form = document.getElementById("new-job");
  if (!form || !form.elements.pool) return;
  const rate = Number(form.elements.pool.selectedOptions[0].dataset.rate);
  const whole = Number(form.elements.minutes.value), search = Number(form.elements.search_minutes.value);
  const trials = Number(form.elements.trials.value);
  const minutes = whole && search ? Math.min(whole, search) : whole || search;
  const rest = whole ? "Importing, compiling and checking are part of the whole job's time." : "Compiling and checking take extra time.";
  let text = `The first limit that is reached ends the search. ${rest}`;
  if (!minutes && !trials) text = "Set a limit: minutes, trials, or both.";
  else if (!rate) text = `The pace is unknown, since no job has searched on these devices yet. ${text}`;
  else if (minutes && (!trials || minutes * rate <= trials)) text = `${whole ? "At most" : "About"} ${count.format(minutes * rate)} trials in ${time(minutes)}, at the pace of the last jobs. ${rest}`;
  else text = `About ${time(trials / rate)} for ${count.format(trials)} trials, at the pace of the last jobs. ${rest}`;
  document.getElementById("estimate").textContent = text;
}

document.addEventListener("input", (event) => { if (event.target.closest("#new-job")) estimate(); });
document.addEventListener("htmx:afterSettle", estimate);
estimate();
