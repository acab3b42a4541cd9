/**
 * The state of a server's GPUs at one moment, with a strict parser. The twin of `jupyter_gpu/model/view.py`;
 * `tests/golden/` is read by both.
 *
 * Amounts of GPU are integers of thousandths ("milli"), memory is bytes.
 */
import {
  boolean,
  count,
  integer,
  listOf,
  maybe,
  nullable,
  number,
  oneOf,
  Reader,
  record,
  text
} from './check';

const MAX_MILLI = 1_000_000;
const MAX_GPUS = 1024;
const milli = integer(0, MAX_MILLI);
const share = integer(1, 1000);
const model = text(128);
const flag = maybe(boolean, false);
/** Seconds since 1970: the last that a date can have in Python is in the year 9999. */
const MAX_TIME = 253_402_300_799;
const moment = integer(0, MAX_TIME);
const time = nullable(moment);
const processId = integer(0, 2 ** 31 - 1);
const word = text(64);
const path = text(4096);
const label = maybe(text(512), '');

const PHASES = [
  'Idle',
  'Pending',
  'Waiting',
  'Attaching',
  'Releasing',
  'Parked',
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
  /** Whether it is lent: programs run while those that have this GPU do nothing. `milli` means nothing then. */
  readonly guest?: boolean;
  readonly state: GpuState;
  readonly users: readonly IUser[];
  /** Programs that use it without having got it from this product. */
  readonly strangers: readonly IStranger[];
  /** Seconds since 1970 since when it rests: it is open, and nothing runs on it. `null`: it does not rest. */
  readonly idleSince: number | null;
  /** Bytes of a whole GPU that is lent while it rests: the rest is a guest's. Absent: it is not lent. */
  readonly keeps?: number;
  /** The part of it in host memory. A GPU that is `attaching` with this is parked, or comes back. */
  readonly parked?: IParkedMemory;
  /** It was parked, and a program needs it. */
  readonly returning?: boolean;
}

/** GPU memory that was moved to host memory. */
export interface IParkedMemory {
  readonly bytes: number;
  /** Seconds since 1970. */
  readonly since: number;
  /** About how many seconds the way back takes; `null`: not known. */
  readonly back: number | null;
}

const RELATIONS = ['node', 'switch', 'other', 'unknown'] as const;
/** The distance of a worker's node from this one: the same node, the same switch, another switch. */
export type Relation = (typeof RELATIONS)[number];

const STAGES = ['creating', 'pulling', 'connecting', 'ready', 'refused', 'failed'] as const;
/** The way of a worker to its notebook. */
export type Stage = (typeof STAGES)[number];

/** A GPU that a worker can open, and how much of it. */
export interface IRemoteGpu {
  readonly uuid: string;
  readonly milli: number;
  /** Why it does not work. Absent: it does. */
  readonly health?: string;
}

/** A worker of this server on another node, and the GPUs there: one card in the panel. */
export interface IWorker {
  readonly id: string;
  readonly node: string;
  readonly relation: Relation;
  readonly stage: Stage;
  /** Amount that this server is to have there. */
  readonly milli: number;
  readonly gpus: readonly IRemoteGpu[];
  /** The words of Kubernetes about a worker that does not run. */
  readonly message: string;
  /** Bytes that were sent there and came back; `null`: not known. */
  readonly shipped: number | null;
  /** Microseconds from a question to its answer; `null`: not known. */
  readonly roundTrip: number | null;
  /** The kinds of `gpus`, in their order; empty while they are not known. */
  readonly kinds: readonly IGpuKind[];
}

/** A condition of this server. */
export interface ICondition {
  readonly type: string;
  readonly message: string;
}

/** GPUs that are alike. */
export interface IGpuKind {
  readonly model: string;
  /** Bytes. */
  readonly memory: number;
  /** A share of it can have another amount of memory than its part. */
  readonly gate: boolean;
}

/** The recorded request. */
export interface IRequested {
  readonly generation: number;
  readonly milli: number;
  /** Milli of each share; `null`: whole GPUs, and one share for the rest. */
  readonly each: number | null;
  /** Bytes of each; `null`: not requested. */
  readonly memory: number | null;
  /** Models that will do; empty: all. */
  readonly model: readonly string[];
  /** `local` or `any`; `null`: not requested, so other nodes may serve it where they serve this server. */
  readonly placement: string | null;
}

/** Milli in each of the three states, and draining. */
export interface IAmounts {
  readonly requested: number;
  readonly allocated: number;
  readonly attached: number;
  readonly draining: number;
  readonly parked?: number;
}

/** The limit that sets a value. */
export interface ISource {
  /** `User`, `Group`, `Namespace`, `Default`, `Cap` or `Unset`. */
  readonly kind: string;
  /** Name of the user, group or namespace. */
  readonly name: string;
  /** The person, or the tool, that wrote it last; may be empty. */
  readonly by: string;
  /** Seconds since 1970 of that. */
  readonly at: number | null;
  /** The part of it that lowers the value now: `hours` or `budget`. */
  readonly part: string | null;
  /** It cannot be read, so the least that it could mean counts. */
  readonly unreadable: boolean;
}

/** The limit of this server's user, for all servers of theirs together. */
export interface IUserLimit {
  /** The part of it that is left for this server; `null`: no limit. */
  readonly milli: number | null;
  readonly max: number | null;
  readonly source: ISource;
  /** Seconds since 1970 at which GPUs above it are taken back; `null`: none are above it. */
  readonly giveBackAt: number | null;
  /** Bytes of GPU memory that are left for this server; `null`: no limit, or no GPU here has more. */
  readonly memory: number | null;
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
  /** `null`: no limits are in force. */
  readonly userLimit: IUserLimit | null;
  readonly gpus: readonly IGpu[];
  /** Workers on other nodes; their GPUs are not among `gpus`. */
  readonly workers: readonly IWorker[];
  /** The part of `total` that is on other nodes; `null`: none of them serves this server. */
  readonly elsewhere: number | null;
  /** The kinds of GPUs of this node or machine. */
  readonly kinds: readonly IGpuKind[];
  /** The kinds of GPUs of other nodes that this server could have. */
  readonly kindsElsewhere: readonly IGpuKind[];
  /** Whether its whole GPUs are lent while they rest, where its requests say that; `null`: they do not. */
  readonly lendable: boolean | null;
  readonly conditions: readonly ICondition[];
}

const user = record<IUser>({
  pid: processId,
  command: text(256),
  foreign: boolean,
  kernel: nullable(text(256)),
  notebook: nullable(path),
  label: maybe(path)
});

const stranger = record<IStranger>({
  pid: processId,
  command: text(256),
  user: nullable(word)
});

const gpu = record<IGpu>({
  uuid: text(96),
  index: integer(0, 4095),
  model,
  memory: count,
  simulated: flag,
  health: label,
  milli: share,
  guest: maybe(boolean),
  state: oneOf(...STATES),
  users: maybe(listOf(user, 1024), []),
  strangers: maybe(listOf(stranger, 16), []),
  idleSince: time,
  keeps: maybe(count),
  parked: maybe(record<IParkedMemory>({ bytes: count, since: moment, back: nullable(count) })),
  returning: maybe(boolean)
});

const kinds = maybe(listOf(record<IGpuKind>({ model, memory: count, gate: flag }), 256), []);

const worker = record<IWorker>({
  id: word,
  node: text(253),
  relation: oneOf(...RELATIONS),
  stage: oneOf(...STAGES),
  milli,
  gpus: listOf(
    record<IRemoteGpu>({ uuid: text(96), milli: share, health: maybe(text(512)) }),
    MAX_GPUS
  ),
  message: maybe(text(1024), ''),
  shipped: nullable(count),
  roundTrip: nullable(count),
  kinds
});

/** Reads the source of a limit. */
export const source = record<ISource>({
  kind: word,
  name: label,
  by: label,
  at: time,
  part: nullable(word),
  unreadable: flag
});

const userLimit = record<IUserLimit>({
  milli: nullable(milli),
  max: nullable(milli),
  source,
  giveBackAt: nullable(number(0, MAX_TIME)),
  memory: nullable(count)
});

const allocated = record({
  position: nullable(integer(1, 1_000_000)),
  limit: nullable(userLimit)
});

const view = record({
  instance: word,
  version: count,
  revision: maybe(count, 0),
  mode: oneOf(...MODES),
  simulated: boolean,
  backend: text(32),
  total: milli,
  limit: milli,
  steps: listOf(milli, 2048),
  phase: oneOf(...PHASES),
  reason: nullable(word),
  settled: boolean,
  amounts: record<IAmounts>({
    requested: milli,
    allocated: milli,
    attached: milli,
    draining: milli,
    parked: maybe(milli)
  }),
  requested: nullable(
    record<IRequested>({
      generation: count,
      milli,
      each: nullable(share),
      memory: nullable(count),
      model: maybe(listOf(model, 16), []),
      placement: nullable(word)
    })
  ),
  allocated: nullable(allocated),
  gpus: listOf(gpu, MAX_GPUS),
  workers: maybe(listOf(worker, 8), []),
  elsewhere: nullable(milli),
  kinds,
  kindsElsewhere: kinds,
  lendable: nullable(boolean),
  conditions: listOf(record<ICondition>({ type: word, message: text(1024) }), 64)
});

/** The view in `value`; throws a `FieldError`. */
export const parseView: Reader<IView> = (value, field) => {
  const { allocated, ...rest } = view(value, field);
  return { ...rest, position: allocated?.position ?? null, userLimit: allocated?.limit ?? null };
};
