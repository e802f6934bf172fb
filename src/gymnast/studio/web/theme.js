// Applies the reader's choice of light or dark before the first paint.
try {
  const theme = localStorage.getItem("gymnast-theme");
  if (theme === "light" || theme === "dark") document.documentElement.classList.add(theme);
} catch {
  // without storage, the system's choice applies
}
