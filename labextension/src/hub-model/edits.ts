/** Edits: from a row to a change, how it is undone, and which results are conflicts. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IEdit, IResult } from '../hub-api/edits';
import { Fields, ISubjectRow } from '../hub-api/limits';
import { join } from '../words/sentence';
import { same } from './draft';
import { IEdited, lockOf, versionOf } from './subject';

/** An edit that came too late: both values, and the version of theirs. */
export interface IConflict {
  readonly edit: IEdit;
  readonly message: string;
  /** `null`: somebody removed the limit. */
  readonly theirs: Fields | null;
  readonly version: string;
}

/**
 * The edit that sets `fields` of a row's own limit; `null` where nothing would change. A limit of which nothing would be left is
 * removed.
 */
export function editOf(row: IEdited, fields: Fields): IEdit | null {
  const version = versionOf(row);
  const before: Fields = version ? row.own!.fields : {};
  const after = { ...before, ...fields };
  const changes = Object.keys(fields).some(key => !same(before[key] ?? null, fields[key] ?? null));
  if (!changes) {
    return null;
  }
  const empty = Object.values(after).every(value => (value ?? null) === null);
  return empty && !version ? null : { subject: row.subject, set: empty ? null : fields, version };
}

/** The edits of all rows that are not locked. */
export function editsOf(
  rows: readonly ISubjectRow[],
  fields: Fields,
  trans: TranslationBundle
): readonly IEdit[] {
  return rows
    .filter(row => !lockOf(row, trans))
    .map(row => editOf(row, fields))
    .filter(edit => edit !== null);
}

/** The edits that undo what was written, for the versions that were written. */
export function inverse(results: readonly IResult[]): readonly IEdit[] {
  return results
    .filter(({ result }) => result === 'created' || result === 'changed' || result === 'removed')
    .map(({ subject, from, to, version }) => {
      const added = Object.keys(to ?? {}).filter(key => !(key in (from ?? {})));
      const gone = Object.fromEntries(added.map(key => [key, null]));
      return { subject, set: from && { ...from, ...gone }, version };
    });
}

/** The results that are conflicts, with the edits that they are of. */
export function conflicts(
  edits: readonly IEdit[],
  results: readonly IResult[]
): readonly IConflict[] {
  return results.flatMap(({ error }, i) => {
    if (error?.reason !== 'Conflict') {
      return [];
    }
    const { theirs, version } = error.details;
    return {
      edit: edits[i],
      message: error.message,
      theirs: typeof theirs === 'object' ? (theirs as Fields | null) : null,
      version: typeof version === 'string' ? version : ''
    };
  });
}

/** The edit of a conflict again, for the version of theirs. Nothing is left to remove where they removed it. */
export function again({ edit, version }: IConflict): IEdit | null {
  return edit.set === null && !version ? null : { ...edit, version };
}

/** `"Saved: 3 limits."` and what was refused, in a sentence each. */
export function summary(results: readonly IResult[], trans: TranslationBundle): string {
  const written = results.filter(({ result }) => result !== 'refused' && result !== 'unchanged');
  const refused = results.filter(({ error }) => error && error.reason !== 'Conflict');
  const counted =
    written.length === 1
      ? trans.__('Saved.')
      : written.length
        ? trans.__('Saved: %1 limits.', written.length)
        : trans.__('Nothing was changed.');
  const messages = [...new Set(refused.map(({ error }) => error!.message))].slice(0, 3);
  const names = refused.map(({ subject }) => subject.name || subject.kind);
  const shown =
    names.length > 3 ? [...names.slice(0, 3), trans.__('%1 others', names.length - 3)] : names;
  return refused.length
    ? trans.__('%1 Refused for %2: %3', counted, join(shown, trans), messages.join(' '))
    : counted;
}
