// Starts after the first paint, so that the headline and the plots show immediately.

function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = (root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    root.style.colorScheme = isDark ? "light" : "dark";
  });
}

async function start() {
  startTheme();
  const blocks = document.querySelectorAll("[data-columns]");
  const runs = await Promise.all(Array.from(blocks, (_, number) => readRun(number)));
  startTable(runs);
  startPlots(runs[0]);
  await startViewer(runs);
  document.documentElement.dataset.ready = "true";
}

requestAnimationFrame(() => setTimeout(start));
