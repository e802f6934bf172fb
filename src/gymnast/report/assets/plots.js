// Following the pointer over the sorted tasks: which one is it, and open it on a click.

function startPlots(run) {
  const plot = document.querySelector('[data-plot="pass-rates"]');
  if (!plot || !run.byReward.length) return;
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  line.setAttribute("class", "pointer");
  line.setAttribute("y1", "18");
  line.setAttribute("y2", "244");
  plot.addEventListener("pointermove", (event) => {
    const found = pointedAt(plot, run, event);
    if (!found) return leave(line);
    line.setAttribute("x1", found.x);
    line.setAttribute("x2", found.x);
    if (!line.parentNode) plot.append(line);
    showTip(run, found.place, event);
  });
  plot.addEventListener("pointerleave", () => leave(line));
  plot.addEventListener("click", (event) => {
    const found = pointedAt(plot, run, event);
    if (found) location.hash = fragmentOf(run, run.ids[found.place]);
  });
}

function pointedAt(plot, run, event) {
  const box = plot.getBoundingClientRect();
  const x = ((event.clientX - box.left) * plot.viewBox.baseVal.width) / box.width;
  const [left, right] = [Number(plot.dataset.left), Number(plot.dataset.right)];
  if (x < left || x >= right) return null;
  const at = Math.floor(((x - left) / (right - left)) * run.byReward.length);
  return { x, place: run.byReward[at] };
}

function showTip(run, place, event) {
  const tip = document.getElementById("tip");
  const range = run.low[place] === null ? "" : ` [${rewardText(run.low[place])}, ${rewardText(run.high[place])}]`;
  tip.replaceChildren(
    make("strong", {}, `Task ${run.ids[place]}: ${rewardText(run.mean[place])}${range}`),
    make("span", {}, `${run.scored[place]} rollouts`),
    make("span", {}, ...spelled(run.prompts[place]))
  );
  tip.hidden = false;
  const width = tip.getBoundingClientRect().width;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

function leave(line) {
  line.remove();
  document.getElementById("tip").hidden = true;
}
