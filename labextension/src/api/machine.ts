/**
 * All GPUs of a machine, the servers that have them, and those that wait. The twin of
 * `jupyter_gpu/model/machine.py`.
 */
import { boolean, count, FieldError, fields, integer, listOf, oneOf, Reader, text } from './check';
import { ILoad, load } from './sample';

const MAX_SERVERS = 4096;
const milli = integer(0, 1_000_000);

/** A server of the machine. */
export interface IServer {
  readonly user: string;
  /** Whether it is the server of this page. */
  readonly here: boolean;
  /** Folder, for servers of the same user; may be empty. */
  readonly folder: string;
  readonly port: number | null;
  readonly ended: boolean;
  /** Milli. */
  readonly has: number;
  /** Milli that it waits for. */
  readonly owed: number;
  readonly position: number | null;
}

/** A part of a GPU that a server has. */
export interface IPart {
  readonly milli: number;
  /** `null`: a server that is not shown. */
  readonly server: IServer | null;
  readonly draining: boolean;
}

/** One GPU. */
export interface IMachineGpu {
  readonly uuid: string;
  readonly index: number;
  readonly model: string;
  readonly memory: number;
  readonly healthy: boolean;
  readonly load: ILoad;
  readonly parts: readonly IPart[];
  /** Free milli. */
  readonly free: number;
}

/** Sums without names. */
export interface ITotals {
  readonly gpus: number;
  readonly free: number;
  readonly used: number;
  readonly waiting: number;
}

/** The machine, as far as this server's user may see it. */
export interface IMachine {
  readonly shown: 'everybody' | 'own' | 'totals';
  readonly totals: ITotals;
  readonly gpus: readonly IMachineGpu[];
  readonly servers: readonly IServer[];
}

const server: Reader<IServer> = (value, field) => {
  const body = fields(value, field);
  return {
    user: body.get('user', text(64)),
    here: body.maybe('here', boolean) ?? false,
    folder: body.maybe('folder', text(512)) ?? '',
    port: body.maybe('port', integer(1, 65535)),
    ended: body.maybe('ended', boolean) ?? false,
    has: body.get('has', milli),
    owed: body.maybe('owed', milli) ?? 0,
    position: body.maybe('position', integer(1, 1_000_000))
  };
};

const part =
  (servers: readonly IServer[]): Reader<IPart> =>
  (value, field) => {
    const body = fields(value, field);
    const place = body.maybe('server', integer(0, MAX_SERVERS));
    if (place !== null && place >= servers.length) {
      throw new FieldError(`${field}.server`, 'one of the servers');
    }
    return {
      milli: body.get('milli', integer(1, 1000)),
      server: place === null ? null : servers[place],
      draining: body.maybe('draining', boolean) ?? false
    };
  };

const gpu =
  (servers: readonly IServer[]): Reader<IMachineGpu> =>
  (value, field) => {
    const body = fields(value, field);
    return {
      uuid: body.get('uuid', text(96)),
      index: body.get('index', integer(0, 4095)),
      model: body.get('model', text(128)),
      memory: body.get('memory', count),
      healthy: body.get('healthy', boolean),
      load: body.get('load', load),
      parts: body.get('parts', listOf(part(servers), MAX_SERVERS)),
      free: body.get('free', integer(0, 1000))
    };
  };

const totals: Reader<ITotals> = (value, field) => {
  const body = fields(value, field);
  return {
    gpus: body.get('gpus', integer(0, 1024)),
    free: body.get('free', milli),
    used: body.get('used', milli),
    waiting: body.get('waiting', integer(0, 1_000_000))
  };
};

/** The machine in `value`; throws a `FieldError`. */
export const parseMachine: Reader<IMachine> = (value, field) => {
  const body = fields(value, field);
  const servers = body.get('servers', listOf(server, MAX_SERVERS));
  return {
    shown: body.get('shown', oneOf('everybody', 'own', 'totals')),
    totals: body.get('totals', totals),
    gpus: body.get('gpus', listOf(gpu(servers), 1024)),
    servers
  };
};
