/**
 * The load of the GPUs and the use of time shares at one moment, with a strict parser. The twin of `Sample` in
 * `jupyter_gpu/model/view.py` and of `jupyter_gpu/model/share.py`; `tests/golden/` is read by both.
 *
 * Memory is bytes. Times are seconds; those of shares are microseconds.
 */
import {
  count,
  FieldError,
  fields,
  integer,
  maybe,
  MAX_EXACT,
  nullable,
  number,
  Reader,
  record,
  text
} from './check';

/** Load of one GPU; `null` for values that the device does not report. */
export interface ILoad {
  /** Per cent. */
  readonly utilisation: number | null;
  /** Bytes in use. */
  readonly memory: number | null;
  /** °C; absent if the device does not report it. */
  readonly temperature?: number;
  /** Watts; absent if the device does not report it. */
  readonly power?: number;
}

/** The use that guests make of a GPU while the shares that have it rest. */
export interface IGuestUse {
  /** Part of the last period in which they ran, 0–1. */
  readonly busy: number;
  /** Bytes in use. */
  readonly memory: number;
}

/**
 * A time share of a GPU at one moment: the twin of `jupyter_gpu/model/share.py`. Times are microseconds,
 * the totals of them since the node made the share.
 */
export interface IShareUse {
  readonly uuid: string;
  /** Milli that it was given, and that it earns now. */
  readonly allocated: number;
  readonly effective: number;
  readonly guaranteed: number;
  readonly borrowed: number;
  readonly idle: number;
  readonly overrun: number;
  readonly switching: number;
  readonly waited: number;
  readonly throttled: number;
  readonly lost: number;
  /** The balance of its bank, and the most that it can hold. */
  readonly balance: number;
  readonly cap: number;
  /** From now until the next deposit is lost. */
  readonly expires: number | null;
  /** Number of other shares of the GPU. */
  readonly sharing: number;
  readonly period: number;
  /** Load of the whole GPU, 0–1. */
  readonly busy: number | null;
  /** Reason for `effective`; may be empty. */
  readonly reason: string;
  readonly memoryUsed: number | null;
  readonly memoryLimit: number | null;
  /** Absent without guests. */
  readonly guest?: IGuestUse;
}

/** Load of all GPUs of this server at one moment. */
export interface ISample {
  readonly time: number;
  readonly gpus: ReadonlyMap<string, ILoad>;
  /** By uuid of the GPU; absent without shares. */
  readonly shares?: ReadonlyMap<string, IShareUse>;
  /** In a history: time of the sample before those that are joined in this one; absent if none are. */
  readonly since?: number;
}

/** The load in `value`; throws a `FieldError`. */
export const load = record<ILoad>({
  utilisation: nullable(number(0, 100)),
  memory: nullable(count),
  temperature: maybe(number(0, 1000)),
  power: maybe(number(0, 100_000))
});

const shareFields = record({
  uuid: text(96),
  allocated: integer(1, 1000),
  effective: integer(1, 1000),
  guaranteed: count,
  borrowed: count,
  idle: count,
  overrun: count,
  switching: count,
  waited: count,
  throttled: count,
  lost: count,
  balance: count,
  cap: count,
  expires: nullable(count),
  sharing: integer(0, 999),
  period: integer(1, MAX_EXACT),
  busy: nullable(number(0, 1)),
  reason: text(200),
  memory_used: nullable(count),
  memory_limit: nullable(count),
  guest: maybe<IGuestUse>(record({ busy: number(0, 1), memory: count }))
});

const share: Reader<IShareUse> = (value, field) => {
  const { memory_used: memoryUsed, memory_limit: memoryLimit, ...rest } = shareFields(value, field);
  return { ...rest, memoryUsed, memoryLimit };
};

/** An object with uuids as keys. */
const byUuid =
  <T>(read: Reader<T>): Reader<ReadonlyMap<string, T>> =>
  (all, at) => {
    fields(all, at);
    const entries = Object.entries(all as Record<string, unknown>);
    return new Map(entries.map(([uuid, item]) => [uuid, read(item, `${at}.${uuid}`)]));
  };

const shares: Reader<ReadonlyMap<string, IShareUse>> = (value, field) => {
  const found = byUuid(share)(value, field);
  for (const [uuid, item] of found) {
    if (item.uuid !== uuid) {
      throw new FieldError(`${field}.${uuid}.uuid`, 'the uuid of its GPU');
    }
  }
  return found;
};

/** The sample in `value`; throws a `FieldError`. */
export const parseSample = record<ISample>({
  time: number(0, MAX_EXACT),
  gpus: byUuid(load),
  shares: maybe(shares),
  since: maybe(number(0, MAX_EXACT))
});
