/**
 * The JSON of the hub's service, with strict parsers; `docs/hub-openapi.yaml` describes it. Amounts of use are integers of
 * thousandths of a GPU ("milli"), amounts of limits quantities (`"2"`, `"500m"`) or `"unlimited"`.
 */
import {
  boolean,
  count,
  fields as anObject,
  listOf,
  maybe,
  nullable,
  oneOf,
  Reader,
  record,
  text
} from '../api/check';
import { ISource, source } from '../api/view';

const MAX_ROWS = 10_000;
const word = text(512);
const sentence = text(20_000);

const KINDS = ['User', 'Group', 'Namespace', 'Default', 'Cap'] as const;
/** The kind of subject that a limit is about. */
export type Kind = (typeof KINDS)[number];

/** The subject of a limit. */
export interface ISubject {
  readonly kind: Kind;
  readonly name: string;
  /** Empty: every hub. */
  readonly hub: string;
}

/** A value, and the limit that it comes from. */
export interface ISourced {
  readonly value: string;
  readonly source: ISource;
}

/** Fields of a limit as in its spec; `null`, or absent: inherited. */
export type Fields = Readonly<Record<string, unknown>>;

/** The limit about a subject that a change is for. */
export interface IOwn {
  readonly version: string | null;
  readonly fields: Fields;
  /** The tool that keeps it; `null`: people. */
  readonly managedBy: string | null;
  /** Whether it is a copy of a group's properties. */
  readonly mirrored: boolean;
}

/** The author and the time of a change. */
export interface IChanged {
  readonly by: string;
  /** ISO 8601. */
  readonly at: string;
}

/** One row of the table. */
export interface ISubjectRow {
  readonly subject: ISubject;
  readonly known: boolean;
  readonly limit: ISourced | null;
  readonly guaranteed: ISourced | null;
  readonly used: number | null;
  readonly waiting: number | null;
  readonly idle: number | null;
  readonly members: number | null;
  readonly own: IOwn | null;
  readonly notes: readonly string[];
  readonly inForce: ISourced | null;
  readonly until: string | null;
  readonly giveBackAt: string | null;
  readonly changed: IChanged | null;
}

/** One page of a table. */
export interface IPage<T> {
  readonly total: number;
  readonly page: number;
  readonly size: number;
  readonly items: readonly T[];
  /** Why it may be out of date. */
  readonly problem: string | null;
}

/** The GPUs of the cluster, in milli. */
export interface ICluster {
  readonly total: number;
  readonly owned: number;
  readonly shares: number;
  readonly draining: number;
  readonly free: number;
  readonly unhealthy: number;
  readonly waiting: number;
}

/** The GPUs of one pod, in milli. */
export interface IPod {
  readonly namespace: string;
  readonly name: string;
  /** Name of the hub's server, empty for the unnamed one; `null`: none. */
  readonly server: string | null;
  readonly used: number;
  readonly draining: number;
  readonly idle: number;
  readonly waiting: number;
  readonly position: number | null;
}

/** The visitor. */
export interface IMe {
  readonly name: string;
  readonly limit: ISourced;
  readonly guaranteed: ISourced;
  readonly used: number;
  readonly waiting: number;
  readonly idle: number;
  readonly inForce: ISourced | null;
  readonly until: string | null;
  readonly giveBackAt: string | null;
  readonly pods: readonly IPod[];
  /** GPU-hours by day (`2026-05-03`). */
  readonly hours: Readonly<Record<string, string>>;
  /** Name of the hub in limits of its users and groups. */
  readonly hub: string;
  /** Whether the GPUs are those of one machine, without a cluster. */
  readonly machine: boolean;
  readonly mayRead: boolean;
  readonly mayEdit: boolean;
  readonly problem: string | null;
}

const subject = record<ISubject>({
  kind: oneOf(...KINDS),
  name: maybe(word, ''),
  hub: maybe(word, '')
});
const sourced = record<ISourced>({ value: text(64), source });
const fields: Reader<Fields> = (value, field) => dictionary(value, field, item => item);
const changed = record<IChanged>({ by: text(1024), at: text(64) });
const own = record<IOwn>({
  version: nullable(text(64)),
  fields,
  managedBy: nullable(word),
  mirrored: boolean
});

const row = record<ISubjectRow>({
  subject,
  known: boolean,
  limit: nullable(sourced),
  guaranteed: nullable(sourced),
  used: nullable(count),
  waiting: nullable(count),
  idle: nullable(count),
  members: nullable(count),
  own: nullable(own),
  notes: listOf(sentence, 1000),
  inForce: nullable(sourced),
  until: nullable(text(64)),
  giveBackAt: nullable(text(64)),
  changed: nullable(changed)
});

/** Reads one page of a table whose rows `read` reads. */
export const pageOf = <T>(read: Reader<T>): Reader<IPage<T>> =>
  record<IPage<T>>({
    total: count,
    page: count,
    size: count,
    items: listOf(read, MAX_ROWS),
    problem: nullable(sentence)
  });

/** Reads a page of the table of subjects. */
export const readSubjects = pageOf(row);

/** Reads the GPUs of the cluster. */
export const readCluster = record<ICluster>({
  total: count,
  owned: count,
  shares: count,
  draining: count,
  free: count,
  unhealthy: count,
  waiting: count
});

const pod = record<IPod>({
  namespace: word,
  name: word,
  server: nullable(word),
  used: count,
  draining: count,
  idle: count,
  waiting: count,
  position: nullable(count)
});

/** Reads the visitor. */
export const readMe = record<IMe>({
  name: word,
  limit: sourced,
  guaranteed: sourced,
  used: count,
  waiting: count,
  idle: count,
  inForce: nullable(sourced),
  until: nullable(text(64)),
  giveBackAt: nullable(text(64)),
  pods: listOf(pod, MAX_ROWS),
  hours: (value, field) => dictionary(value, field, text(64)),
  hub: maybe(word, ''),
  mayRead: boolean,
  machine: boolean,
  mayEdit: boolean,
  problem: nullable(sentence)
});

/** Reads an object whose values `read` reads, whatever its keys are. */
export function dictionary<T>(value: unknown, field: string, read: Reader<T>): Record<string, T> {
  anObject(value, field);
  const entries = Object.entries(value as Record<string, unknown>);
  return Object.fromEntries(entries.map(([key, item]) => [key, read(item, `${field}.${key}`)]));
}

export {
  changed as readChanged,
  fields as readFields,
  own as readOwn,
  pod as readPod,
  subject as readSubject
};
