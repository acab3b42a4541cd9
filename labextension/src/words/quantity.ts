/** Amounts for people: the twin of `jupyter_gpu/model/quantity.py`. */

export const MILLI_PER_GPU = 1000;
/** Places in line up to this one are exact, those behind it approximate. */
export const EXACT_POSITIONS = 10;

/** `2000` → `"2"`, `250` → `"0.25"`. */
export function formatGpus(milli: number): string {
  return String(milli / MILLI_PER_GPU);
}

const FRACTIONS = new Map([
  [125, '⅛'],
  [250, '¼'],
  [375, '⅜'],
  [500, '½'],
  [625, '⅝'],
  [750, '¾'],
  [875, '⅞']
]);

/** As short as possible, for ticks: `250` → `"¼"`, `1500` → `"1½"`, `300` → `"0.3"`. */
export function shortGpus(milli: number): string {
  const fraction = FRACTIONS.get(milli % MILLI_PER_GPU);
  if (!fraction) {
    return formatGpus(milli);
  }
  const whole = Math.floor(milli / MILLI_PER_GPU);
  return whole ? `${whole}${fraction}` : fraction;
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

/**
 * Milli of what a person typed in the number field (`"2"`, `"0.5"`, `"0,5"`), or `null` if that is
 * no amount up to `limit`.
 */
export function parseGpus(typed: string, limit: number): number | null {
  const text = typed.trim().replace(',', '.');
  if (!/^(\d{1,4}\.?\d{0,9}|\.\d{1,9})$/.test(text)) {
    return null;
  }
  const milli = Number(text) * MILLI_PER_GPU;
  const rounded = Math.round(milli);
  return Math.abs(milli - rounded) < 1e-6 && rounded <= limit ? rounded : null;
}
