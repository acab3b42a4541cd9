/** Taking GPUs back: the edits that lower the limits of those who have more. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IEdit } from '../hub-api/edits';
import { ISubjectRow } from '../hub-api/limits';
import { milliOf } from './amount';
import { editsOf } from './edits';

/** The users among `rows` from whom something can be taken. */
export function reclaimable(rows: readonly ISubjectRow[]): readonly ISubjectRow[] {
  return rows.filter(({ subject, used }) => subject.kind === 'User' && (used ?? 0) > 0);
}

/**
 * The edits that leave each user `left` (a quantity), with `grace` (`"10m"`) until the rest is taken back. Who has no more than that is
 * left alone. A guarantee above `left` is lowered as well, as a limit must not be below it.
 */
export function reclaimed(
  rows: readonly ISubjectRow[],
  left: string,
  grace: string,
  trans: TranslationBundle
): readonly IEdit[] {
  const most = milliOf(left) ?? 0;
  return reclaimable(rows)
    .filter(({ used }) => used! > most)
    .flatMap(row => {
      const guaranteed = row.own && !row.own.mirrored ? row.own.fields.guaranteed : null;
      const more = typeof guaranteed === 'string' && (milliOf(guaranteed) ?? 0) > most;
      return editsOf([row], { max: left, grace, ...(more && { guaranteed: left }) }, trans);
    });
}
