// Estimates the trials or the time of a budget, from the pace of the pool's last jobs.
const count = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const time = (minutes) => minutes < 90 ? `${count.format(Math.max(minutes, 0.1))} minutes` : `${count.format(minutes / 60)} hours`;

function estimate() {
  const form = document.getElementById("new-job");
  if (!form || !form.elements.pool) return;
  const rate = Number(form.elements.pool.selectedOptions[0].dataset.rate);
  const minutes = Number(form.elements.minutes.value), trials = Number(form.elements.trials.value);
  let text = "The first limit reached ends the search. Compiling and checking take extra time.";
  if (!minutes && !trials) text = "Set a limit: minutes, trials, or both.";
  else if (!rate) text = `The pace is unknown, since no job has searched on these devices yet. ${text}`;
  else if (minutes && (!trials || minutes * rate <= trials)) text = `About ${count.format(minutes * rate)} trials in ${time(minutes)}, at the pace of the last jobs. Compiling and checking take extra time.`;
  else text = `About ${time(trials / rate)} for ${count.format(trials)} trials, at the pace of the last jobs. Compiling and checking take extra time.`;
  document.getElementById("estimate").textContent = text;
}

document.addEventListener("input", (event) => { if (event.target.closest("#new-job")) estimate(); });
document.addEventListener("htmx:afterSettle", estimate);
estimate();
