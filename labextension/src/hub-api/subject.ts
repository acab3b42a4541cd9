/** The limit of one subject with all its fields, and what each comes to; with strict parsers. */
import {
  boolean,
  integer,
  listOf,
  maybe,
  nullable,
  oneOf,
  Reader,
  record,
  text
} from '../api/check';
import { ISource, source } from '../api/view';
import { dictionary, IChanged, IOwn, ISubject, readChanged, readOwn, readSubject } from './limits';

/** A value of any type, and the limit that it comes from. */
export interface IFrom<T> {
  readonly value: T;
  readonly source: ISource;
}

/** A budget as in the spec. */
export interface IBudget {
  /** A number, text such as `"0.5"`, or `"unlimited"`. */
  readonly gpuHours: number | string;
  readonly window: Window;
}

export const WINDOWS = ['Day', 'Week', 'Month'] as const;
/** The window of a budget. */
export type Window = (typeof WINDOWS)[number];

export const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'] as const;
/** A day of the week. */
export type Day = (typeof DAYS)[number];

/** Another maximum for some hours, as in the spec. */
export interface IHours {
  readonly days: readonly Day[];
  /** `"08:00"`. */
  readonly from: string;
  readonly to: string;
  /** A quantity, or `"unlimited"`. */
  readonly max: string;
}

/** Budgets, or hours: of the alternatives the most generous holds, and those of the cap besides. */
export interface ICombined<T> {
  readonly alternatives: readonly (readonly IFrom<T>[])[];
  readonly cap: readonly IFrom<T>[];
}

/** The maximum of one model of GPU, as in the spec. */
export interface IModel {
  readonly model: string;
  readonly max: string;
}

/** The values that hold; `null`: no limit sets the field. */
export interface IEffective {
  readonly max: IFrom<string> | null;
  readonly guaranteed: IFrom<string> | null;
  readonly weight: IFrom<number> | null;
  readonly priority: IFrom<number> | null;
  readonly models: Readonly<Record<string, IFrom<string>>>;
  readonly memory: IFrom<string> | null;
  readonly idleTimeout: IFrom<string> | null;
  readonly budget: ICombined<IBudget>;
  readonly hours: ICombined<IHours>;
  readonly remote: IFrom<boolean> | null;
  readonly lendable: IFrom<boolean> | null;
  readonly grace: IFrom<string> | null;
}

/** One subject. */
export interface ISubjectDetails {
  readonly subject: ISubject;
  /** Name of the object of its limit, also before there is one. */
  readonly object: string;
  /** `null`: people wrote no limit for it. */
  readonly own: IOwn | null;
  readonly effective: IEffective;
  /** The same without the own limit. */
  readonly inherited: IEffective;
  readonly notes: readonly string[];
  readonly changed: IChanged | null;
  /** Of hours and budgets. */
  readonly timeZone: string;
}

/** A limit's fields with their types; `null`: inherited. */
export interface ILimitFields {
  readonly max: string | null;
  readonly guaranteed: string | null;
  readonly weight: number | null;
  readonly priority: { readonly max: number } | null;
  readonly models: readonly IModel[] | null;
  readonly memory: string | null;
  readonly idleTimeout: string | null;
  readonly budget: IBudget | null;
  readonly hours: readonly IHours[] | null;
  readonly remote: boolean | null;
  readonly lendable: boolean | null;
  readonly grace: string | null;
}

const MAX_PARTS = 1000;
const word = text(64);
const weight = integer(1, 1000);
const priority = integer(0, 9);

const gpuHours: Reader<number | string> = (value, field) =>
  typeof value === 'number' ? integer(0, 10_000_000)(value, field) : word(value, field);
const budget = record<IBudget>({ gpuHours, window: oneOf(...WINDOWS) });
const hours = record<IHours>({
  days: listOf(oneOf(...DAYS), DAYS.length),
  from: text(5),
  to: text(5),
  max: word
});

/** Reads the fields of a limit, as the service writes them. */
export const readLimitFields = record<ILimitFields>({
  max: nullable(word),
  guaranteed: nullable(word),
  weight: nullable(weight),
  priority: nullable(record({ max: priority })),
  models: nullable(listOf(record<IModel>({ model: text(128), max: word }), MAX_PARTS)),
  memory: nullable(word),
  idleTimeout: nullable(word),
  budget: nullable(budget),
  hours: nullable(listOf(hours, MAX_PARTS)),
  remote: nullable(boolean),
  lendable: nullable(boolean),
  grace: nullable(word)
});

const from = <T>(read: Reader<T>) => record<IFrom<T>>({ value: read, source });

function combined<T>(read: Reader<T>): Reader<ICombined<T>> {
  const items = listOf(from(read), MAX_PARTS);
  const body = record<ICombined<T>>({
    alternatives: maybe(listOf(items, MAX_PARTS), []),
    cap: maybe(items, [])
  });
  return (value, field) => body(value ?? {}, field);
}

const effective = record<IEffective>({
  max: nullable(from(word)),
  guaranteed: nullable(from(word)),
  weight: nullable(from(weight)),
  priority: nullable(from(priority)),
  models: (value, field) => dictionary(value ?? {}, field, from(word)),
  memory: nullable(from(word)),
  idleTimeout: nullable(from(word)),
  budget: combined(budget),
  hours: combined(hours),
  remote: nullable(from(boolean)),
  lendable: nullable(from(boolean)),
  grace: nullable(from(word))
});

/** Reads one subject. */
export const readSubjectDetails = record<ISubjectDetails>({
  subject: readSubject,
  object: text(512),
  own: nullable(readOwn),
  effective,
  inherited: effective,
  notes: listOf(text(20_000), MAX_PARTS),
  changed: nullable(readChanged),
  timeZone: word
});

/** The address of a subject, below the API. */
export function subjectAddress({ kind, name, hub }: ISubject): string {
  const query = new URLSearchParams({ kind, ...(name && { name }), ...(hub && { hub }) });
  return `subject?${query}`;
}
