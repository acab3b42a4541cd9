/** Amounts for people: the twin of `jupyter_gpu/model/quantity.py`. */

export const MILLI_PER_GPU = 1000;
/** Places in line up to this one are exact, those behind it approximate. */
export const EXACT_POSITIONS = 10;

/** `2000` → `"2"`, `250` → `"0.25"`. */
export function formatGpus(milli: number): string {
  return String(milli / MILLI_PER_GPU);
}

/** `85_899_345_920` → `"80 GiB"`, `1536` → `"1.5 KiB"`. */
export function formatBytes(amount: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = amount;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1).replace(/\.0$/, '')} ${units[unit]}`;
}
