// Shows the task under the pointer in the plot of sorted tasks, and opens it on a click.

function startPlots(run) {
  const plot = document.querySelector('[data-plot="pass-rates"]');
  if (!plot || !run.byReward.length) return;
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  line.setAttribute("class", "pointer");
  line.setAttribute("y1", "18");
  line.setAttribute("y2", "244");
  plot.addEventListener("pointermove", (event) => {
    const target = taskAt(plot, run, event);
    if (!target) return leave(line);
    line.setAttribute("x1", target.x);
    line.setAttribute("x2", target.x);
    if (!line.parentNode) plot.append(line);
    showTip(run, target.index, event);
  });
  plot.addEventListener("pointerleave", () => leave(line));
  plot.addEventListener("click", (event) => {
    const target = taskAt(plot, run, event);
    if (target) location.hash = fragmentOf(run, run.ids[target.index]);
  });
}

function taskAt(plot, run, event) {
  const box = plot.getBoundingClientRect();
  const x = ((event.clientX - box.left) * plot.viewBox.baseVal.width) / box.width;
  const [left, right] = [Number(plot.dataset.left), Number(plot.dataset.right)];
  if (x < left || x >= right) return null;
  const rank = Math.floor(((x - left) / (right - left)) * run.byReward.length);
  return { x, index: run.byReward[rank] };
}

function showTip(run, index, event) {
  const tip = document.getElementById("tip");
  const range = run.low[index] === null ? "" : ` [${rewardText(run.low[index])}, ${rewardText(run.high[index])}]`;
  tip.replaceChildren(
    make("strong", {}, `Task ${run.ids[index]}: ${rewardText(run.mean[index])}${range}`),
    make("span", {}, `${run.scored[index]} rollouts`),
    make("span", {}, ...toNodes(run.prompts[index]))
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
