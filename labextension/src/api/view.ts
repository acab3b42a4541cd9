/**
 * The state of a server's GPUs at one moment, with a strict parser. The twin of `jupyter_gpu/model/view.py`;
 * `tests/golden/` is read by both.
 *
 * Amounts of GPU are integers of thousandths ("milli"), memory is bytes.
 */
import { boolean, Fields, fields, integer, listOf, oneOf, Reader, text } from './check';

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
