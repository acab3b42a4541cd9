/**
 * The server's answers as types with strict parsers: the view, the samples, the messages of the
 * stream. The twin of `jupyter_gpu/model/view.py`; `tests/golden/` is read by both.
 *
 * Amounts of GPU are integers of thousandths ("milli"), memory is bytes, times are seconds.
 */
import {
  boolean,
  FieldError,
  Fields,
  fields,
  integer,
  listOf,
  number,
  oneOf,
  Reader,
  text
} from './check';

const MAX_MILLI = 1_000_000;
const MAX_GPUS = 1024;
const milli = integer(0, MAX_MILLI);
const count = integer(0, Number.MAX_SAFE_INTEGER);

const PHASES = [
  'Idle',
  'Pending',
  'Waiting',
  'Attaching',
  'Releasing',
  'Ready',
  'Degraded',
  'Refused'
] as const;
/** One word for the state of all GPUs of this server. */
export type Phase = (typeof PHASES)[number];

const STATES = ['attaching', 'attached', 'draining', 'unhealthy'] as const;
/** State of one GPU. */
export type GpuState = (typeof STATES)[number];

const MODES = ['enforced', 'soft'] as const;
/** Whether the operating system enforces which programs can open which GPU. */
export type Mode = (typeof MODES)[number];

/** A process that has a GPU open. */
export interface IUser {
  readonly pid: number;
  readonly command: string;
  /** It runs outside this server. */
  readonly foreign: boolean;
  /** Id of the kernel that it belongs to. */
  readonly kernel: string | null;
  /** Path of the notebook or console of that kernel. */
  readonly notebook: string | null;
  /** The part of that path that distinguishes it from all others of this server; absent if there is none. */
  readonly label?: string;
}

/** A process that uses a GPU and did not get it from this product. */
export interface IStranger {
  /** 0 if it has none here. */
  readonly pid: number;
  readonly command: string;
  /** The account that it runs as. */
  readonly user: string | null;
}

/** A GPU of this server: one card in the panel. */
export interface IGpu {
  readonly uuid: string;
  readonly index: number;
  readonly model: string;
  readonly memory: number;
  readonly simulated: boolean;
  /** Why it does not work; empty if it does. */
  readonly health: string;
  readonly milli: number;
  readonly state: GpuState;
  readonly users: readonly IUser[];
  /** Programs that use it without having got it from this product. */
  readonly strangers: readonly IStranger[];
}

/** A condition of this server. */
export interface ICondition {
  readonly type: string;
  readonly message: string;
}

/** The recorded wish. */
export interface IRequested {
  readonly generation: number;
  readonly milli: number;
  /** Bytes of each; `null`: not requested. */
  readonly memory: number | null;
}

/** Milli in each of the three states, and draining. */
export interface IAmounts {
  readonly requested: number;
  readonly allocated: number;
  readonly attached: number;
  readonly draining: number;
}

/** Everything at one moment. */
export interface IView {
  /** Changes when the server restarts; `version` counts within it. */
  readonly instance: string;
  readonly version: number;
  /** Counts changes of words only, within the instance: of two views of one version the higher is newer. */
  readonly revision: number;
  readonly mode: Mode;
  readonly simulated: boolean;
  readonly backend: string;
  readonly total: number;
  readonly limit: number;
  /** Amounts that the slider offers, ascending. */
  readonly steps: readonly number[];
  readonly phase: Phase;
  readonly reason: string | null;
  /** Nothing more happens by itself. */
  readonly settled: boolean;
  readonly amounts: IAmounts;
  readonly requested: IRequested | null;
  /** Place in line; 1 is next. Beyond `EXACT_POSITIONS` it is approximate. */
  readonly position: number | null;
  readonly gpus: readonly IGpu[];
  readonly conditions: readonly ICondition[];
}

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

/** A message of the stream. */
export type Message =
  | { readonly type: 'view'; readonly view: IView }
  | { readonly type: 'history'; readonly interval: number; readonly points: readonly ISample[] }
  | { readonly type: 'sample'; readonly sample: ISample }
  | { readonly type: 'error'; readonly reason: string; readonly message: string };

const user: Reader<IUser> = (value, field) => {
  const body = fields(value, field);
  const label = body.maybe('label', text(4096));
  return {
    pid: body.get('pid', integer(0, 2 ** 31 - 1)),
    command: body.get('command', text(256)),
    foreign: body.get('foreign', boolean),
    kernel: body.maybe('kernel', text(256)),
    notebook: body.maybe('notebook', text(4096)),
    ...(label === null ? {} : { label })
  };
};

const stranger: Reader<IStranger> = (value, field) => {
  const body = fields(value, field);
  return {
    pid: body.get('pid', integer(0, 2 ** 31 - 1)),
    command: body.get('command', text(256)),
    user: body.maybe('user', text(64))
  };
};

const gpu: Reader<IGpu> = (value, field) => {
  const body = fields(value, field);
  return {
    uuid: body.get('uuid', text(96)),
    index: body.get('index', integer(0, 4095)),
    model: body.get('model', text(128)),
    memory: body.get('memory', count),
    simulated: body.maybe('simulated', boolean) ?? false,
    health: body.maybe('health', text(512)) ?? '',
    milli: body.get('milli', integer(1, 1000)),
    state: body.get('state', oneOf(...STATES)),
    users: body.maybe('users', listOf(user, 1024)) ?? [],
    strangers: body.maybe('strangers', listOf(stranger, 16)) ?? []
  };
};

const condition: Reader<ICondition> = (value, field) => {
  const body = fields(value, field);
  return { type: body.get('type', text(64)), message: body.get('message', text(1024)) };
};

const requested: Reader<IRequested> = (value, field) => {
  const body = fields(value, field);
  return {
    generation: body.get('generation', count),
    milli: body.get('milli', milli),
    memory: body.maybe('memory', count)
  };
};

const amounts: Reader<IAmounts> = (value, field) => {
  const body = fields(value, field);
  return {
    requested: body.get('requested', milli),
    allocated: body.get('allocated', milli),
    attached: body.get('attached', milli),
    draining: body.get('draining', milli)
  };
};

const position: Reader<number | null> = (value, field) =>
  fields(value, field).maybe('position', integer(1, 1_000_000));

function readView(body: Fields): IView {
  return {
    instance: body.get('instance', text(64)),
    version: body.get('version', count),
    revision: body.maybe('revision', count) ?? 0,
    mode: body.get('mode', oneOf(...MODES)),
    simulated: body.get('simulated', boolean),
    backend: body.get('backend', text(32)),
    total: body.get('total', milli),
    limit: body.get('limit', milli),
    steps: body.get('steps', listOf(milli, 2048)),
    phase: body.get('phase', oneOf(...PHASES)),
    reason: body.maybe('reason', text(64)),
    settled: body.get('settled', boolean),
    amounts: body.get('amounts', amounts),
    requested: body.maybe('requested', requested),
    position: body.maybe('allocated', position),
    gpus: body.get('gpus', listOf(gpu, MAX_GPUS)),
    conditions: body.get('conditions', listOf(condition, 64))
  };
}

/** The view in `value`; throws a `FieldError`. */
export const parseView: Reader<IView> = (value, field) => readView(fields(value, field));

/** The load in `value`; throws a `FieldError`. */
export const load: Reader<ILoad> = (value, field) => {
  const body = fields(value, field);
  const temperature = body.maybe('temperature', number(0, 1000));
  const power = body.maybe('power', number(0, 100_000));
  return {
    utilisation: body.maybe('utilisation', number(0, 100)),
    memory: body.maybe('memory', count),
    ...(temperature === null ? {} : { temperature }),
    ...(power === null ? {} : { power })
  };
};

const share: Reader<IShareUse> = (value, field) => {
  const body = fields(value, field);
  return {
    uuid: body.get('uuid', text(96)),
    allocated: body.get('allocated', integer(1, 1000)),
    effective: body.get('effective', integer(1, 1000)),
    guaranteed: body.get('guaranteed', count),
    borrowed: body.get('borrowed', count),
    idle: body.get('idle', count),
    overrun: body.get('overrun', count),
    switching: body.get('switching', count),
    waited: body.get('waited', count),
    throttled: body.get('throttled', count),
    lost: body.get('lost', count),
    balance: body.get('balance', count),
    cap: body.get('cap', count),
    expires: body.maybe('expires', count),
    sharing: body.get('sharing', integer(0, 999)),
    period: body.get('period', integer(1, Number.MAX_SAFE_INTEGER)),
    busy: body.maybe('busy', number(0, 1)),
    reason: body.get('reason', text(200)),
    memoryUsed: body.maybe('memory_used', count),
    memoryLimit: body.maybe('memory_limit', count)
  };
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
export const parseSample: Reader<ISample> = (value, field) => {
  const body = fields(value, field);
  const found = body.maybe('shares', shares);
  const since = body.maybe('since', number(0, Number.MAX_SAFE_INTEGER));
  return {
    time: body.get('time', number(0, Number.MAX_SAFE_INTEGER)),
    gpus: body.get('gpus', byUuid(load)),
    ...(found ? { shares: found } : {}),
    ...(since === null ? {} : { since })
  };
};

/** The stream's message in `data`; `null` for a type that this version does not know. Throws a `FieldError`. */
export function parseMessage(data: unknown): Message | null {
  const body = fields(data, 'message');
  const type = body.get('type', text(32));
  switch (type) {
    case 'view':
      return { type, view: body.get('view', parseView) };
    case 'history':
      return {
        type,
        interval: body.get('interval', number(0.01, 3600)),
        points: body.get('points', listOf(parseSample, 100_000))
      };
    case 'sample':
      return { type, sample: body.get('sample', parseSample) };
    case 'error':
      return {
        type,
        reason: body.get('reason', text(64)),
        message: body.get('message', text(4096))
      };
    default:
      return null;
  }
}
