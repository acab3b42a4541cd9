/** The theme of the hub's pages: the same choice, kept in the same place; bundled apart, to run before the page is shown. */

const KEY = 'jupyterhub-bs-theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a browser that keeps nothing
  }
}

function apply(): void {
  const chosen = stored();
  const theme = chosen === 'dark' || chosen === 'light' ? chosen : dark.matches ? 'dark' : 'light';
  document.documentElement.dataset.bsTheme = theme;
}

function toggle(): void {
  const next = document.documentElement.dataset.bsTheme === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // It holds for this page.
  }
  document.documentElement.dataset.bsTheme = next;
}

apply();
dark.addEventListener('change', apply);
window.addEventListener('storage', apply); // changed in another tab
window.addEventListener('DOMContentLoaded', () => {
  const button = document.getElementById('dark-theme-toggle');
  if (button) {
    button.hidden = false;
    button.addEventListener('click', toggle);
  }
});
