/** Answers about one user, past changes, and imports; with strict parsers. */
import { boolean, count, listOf, maybe, nullable, oneOf, record, text } from '../api/check';
import { IPreview, IResult, readPreview, readResult } from './edits';
import {
  dictionary,
  Fields,
  IPod,
  ISubject,
  pageOf,
  readFields,
  readPod,
  readSubject
} from './limits';

const MAX_ROWS = 20_000;
const sentence = text(20_000);

/** One limit, and its part in the value of a field. */
export interface IStep {
  readonly object: string;
  readonly subject: ISubject | null;
  /** As in its spec; `null`: it does not set the field. */
  readonly value: unknown;
  readonly holds: boolean;
  readonly reason: string;
}

/** One user's limit, and the limits that it comes from. */
export interface IExplanation {
  readonly name: string;
  readonly sentence: string;
  readonly limits: readonly IStep[];
  readonly pods: readonly IPod[];
  readonly hours: Readonly<Record<string, string>>;
}

/** Reads the explanation of one user. */
export const readExplanation = record<IExplanation>({
  name: text(512),
  sentence,
  limits: listOf(
    record<IStep>({
      object: text(512),
      subject: nullable(readSubject),
      value: value => value,
      holds: boolean,
      reason: sentence
    }),
    MAX_ROWS
  ),
  pods: listOf(readPod, MAX_ROWS),
  hours: (value, field) => dictionary(value, field, text(64))
});

/** One past change. */
export interface IPast {
  readonly object: string;
  readonly subject: ISubject | null;
  readonly by: string;
  readonly at: string;
  /** Fields before; `null`: there was no limit, or it is not known. */
  readonly from: Fields | null;
  readonly to: Fields | null;
}

/** Reads a page of the list of changes. */
export const readAudit = pageOf(
  record<IPast>({
    object: text(512),
    subject: nullable(readSubject),
    by: text(1024),
    at: text(64),
    from: nullable(readFields),
    to: nullable(readFields)
  })
);

const OUTCOMES = ['added', 'changed', 'removed', 'unchanged', 'refused'] as const;

/** The effect of an import on one limit. */
export interface ILine {
  readonly outcome: (typeof OUTCOMES)[number];
  readonly subject: ISubject | null;
  /** The spec in the import; `null`: the limit is not in it. */
  readonly line: number | null;
  readonly changes: readonly IFieldChange[];
  readonly errors: readonly string[];
}

/** One field before and after. */
export interface IFieldChange {
  readonly field: string;
  readonly from: unknown;
  readonly to: unknown;
}

/** The effect of an import, planned or done. */
export interface IImport {
  readonly sentence: string;
  /** Whether a limit cannot be written. */
  readonly refused: boolean;
  readonly lines: readonly ILine[];
  /** The effect on people; a dry run has it. */
  readonly preview: IPreview | null;
  /** `null`: nothing was written. */
  readonly results: readonly IResult[] | null;
}

/** Reads what an import does. */
export const readImport = record<IImport>({
  sentence,
  refused: boolean,
  lines: listOf(
    record<ILine>({
      outcome: oneOf(...OUTCOMES),
      subject: nullable(readSubject),
      line: nullable(count),
      changes: maybe(
        listOf(
          record<IFieldChange>({
            field: text(64),
            from: value => value,
            to: value => value
          }),
          100
        ),
        []
      ),
      errors: maybe(listOf(sentence, 100), [])
    }),
    MAX_ROWS
  ),
  preview: nullable(readPreview),
  results: nullable(listOf(readResult, MAX_ROWS))
});
