/** Many changes of limits in one request, and their results; with strict parsers. */
import {
  boolean,
  fields as anObject,
  listOf,
  maybe,
  nullable,
  oneOf,
  record,
  text
} from '../api/check';
import { Api } from './call';
import { Fields, ISubject, readFields, readSubject } from './limits';

/** A wanted change of the limit of one subject. */
export interface IEdit {
  readonly subject: ISubject;
  /** Fields to set, `null` in one: inherited from then on; `null`: remove the limit. */
  readonly set: Fields | null;
  /** The version that was seen, empty: there was no limit. */
  readonly version: string;
}

const RESULTS = ['created', 'changed', 'removed', 'unchanged', 'refused'] as const;
/** The result of an edit. */
export type Outcome = (typeof RESULTS)[number];

/** Why an edit was refused. */
export interface IRefused {
  readonly reason: string;
  readonly message: string;
  /** The sides of a conflict: `yours`, `theirs` and the `version` of theirs. */
  readonly details: Readonly<Record<string, unknown>>;
}

/** The result of one edit. */
export interface IResult {
  readonly subject: ISubject;
  readonly result: Outcome;
  /** Fields before; `null`: there was no limit. */
  readonly from: Fields | null;
  readonly to: Fields | null;
  /** The version that was written; empty: there is no limit now. */
  readonly version: string;
  readonly error: IRefused | null;
}

/** One user who would lose GPUs. */
export interface ILoser {
  readonly owner: { readonly kind: string; readonly name: string };
  /** A quantity. */
  readonly lost: string;
}

/** The consequences of a change. */
export interface IPreview {
  readonly sentence: string;
  readonly losers: readonly ILoser[];
}

/** The answer to many edits. */
export interface IBulk {
  readonly results: readonly IResult[];
  /** The consequences; a dry run has them. */
  readonly preview: IPreview | null;
}

const MAX_ROWS = 10_000;

/** Reads the result of one edit. */
export const readResult = record<IResult>({
  subject: readSubject,
  result: oneOf(...RESULTS),
  from: nullable(readFields),
  to: nullable(readFields),
  version: maybe(text(64), ''),
  error: nullable(
    record<IRefused>({
      reason: text(64),
      message: text(20_000),
      details: maybe((value, field) => {
        anObject(value, field);
        return value as Record<string, unknown>;
      }, {})
    })
  )
});

/** Reads a preview. */
export const readPreview = record<IPreview>({
  sentence: text(20_000),
  losers: listOf(
    record<ILoser>({ owner: record({ kind: text(64), name: text(512) }), lost: text(64) }),
    100_000
  )
});

const readBulk = record<IBulk & { dryRun: boolean }>({
  dryRun: boolean,
  results: listOf(readResult, MAX_ROWS),
  preview: nullable(readPreview)
});

/** Carry out edits, or with `dryRun` only say what would follow. */
export function bulk(api: Api, edits: readonly IEdit[], dryRun: boolean): Promise<IBulk> {
  const written = edits.map(edit => ({ ...edit, subject: named(edit.subject) }));
  return api.post('limits/bulk', { edits: written, dryRun }, readBulk);
}

/** A subject without empty fields, as the service wants it. */
function named({ kind, name, hub }: ISubject): Partial<ISubject> {
  return { kind, ...(name && { name }), ...(hub && { hub }) };
}
