/** GPU-hours by day, for the chart: the last days in order, days without use included. Pure. */

/** Days that are kept and shown. */
export const DAYS = 35;
const DAY = 24 * 3600 * 1000;

/** One day. */
export interface IDay {
  /** `2026-05-03`. */
  readonly day: string;
  readonly hours: number;
}

/** The last `DAYS` days up to `today` (`2026-05-03`), oldest first. */
export function lastDays(hours: Readonly<Record<string, string>>, today: string): readonly IDay[] {
  const last = Date.parse(`${today}T00:00:00Z`);
  return Array.from({ length: DAYS }, (_, i) => {
    const day = new Date(last - (DAYS - 1 - i) * DAY).toISOString().slice(0, 10);
    const value = Number(hours[day] ?? 0);
    return { day, hours: Number.isFinite(value) && value > 0 ? value : 0 };
  });
}

/** The sum of all days, with one digit after the point at most. */
export function total(days: readonly IDay[]): string {
  return rounded(days.reduce((sum, { hours }) => sum + hours, 0));
}

/** `"12.5"`. */
export function rounded(hours: number): string {
  return String(Math.round(hours * 10) / 10);
}

/** The round number at or above the largest day: the top of the chart. */
export function top(days: readonly IDay[]): number {
  const most = Math.max(...days.map(({ hours }) => hours), 1);
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= most)!;
}
