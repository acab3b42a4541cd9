/**
 * Details of GPUs in addition to their load: the twin of
 * `jupyter_gpu/model/details.py`. Values that a GPU does not report are `null`, never 0.
 */
import { count, Fields, fields, integer, listOf, number, Reader, text } from './check';

const MAX_PROCESSES = 1024;

/** Bytes a second into the GPU and out of it. */
export interface IRates {
  readonly received: number;
  readonly sent: number;
}

/** A process that the user may see, and its bytes of GPU memory. */
export interface INamedUse {
  readonly pid: number;
  readonly command: string;
  readonly memory: number | null;
}

/** All other processes on the GPU: their number and sum. */
export interface IOthers {
  readonly processes: number;
  readonly memory: number | null;
}

/** Details of one GPU. */
export interface IGpuDetails {
  /** °C at which the GPU throttles itself. */
  readonly slowdown: number | null;
  /** Watts. */
  readonly powerLimit: number | null;
  readonly pcie: IRates | null;
  readonly nvlink: IRates | null;
  readonly processes: readonly INamedUse[] | null;
  readonly others: IOthers | null;
}

/** Details by uuid. */
export type Details = ReadonlyMap<string, IGpuDetails>;

const rates: Reader<IRates> = (value, field) => {
  const body = fields(value, field);
  return { received: body.get('received', count), sent: body.get('sent', count) };
};

const namedUse: Reader<INamedUse> = (value, field) => {
  const body = fields(value, field);
  return {
    pid: body.get('pid', integer(0, 2 ** 31 - 1)),
    command: body.get('command', text(256)),
    memory: body.maybe('memory', count)
  };
};

const others: Reader<IOthers> = (value, field) => {
  const body = fields(value, field);
  return {
    processes: body.get('processes', integer(1, MAX_PROCESSES)),
    memory: body.maybe('memory', count)
  };
};

const readGpu = (body: Fields): IGpuDetails => ({
  slowdown: body.maybe('slowdown', integer(0, 1000)),
  powerLimit: body.maybe('power_limit', number(0, 100_000)),
  pcie: body.maybe('pcie', rates),
  nvlink: body.maybe('nvlink', rates),
  processes: body.maybe('processes', listOf(namedUse, MAX_PROCESSES)),
  others: body.maybe('others', others)
});

/** The details in `value`; throws a `FieldError`. */
export const parseDetails: Reader<Details> = (value, field) => {
  const all = fields(value, field).get('gpus', (found, at) => {
    fields(found, at);
    return Object.entries(found as Record<string, unknown>);
  });
  return new Map(all.map(([uuid, item]) => [uuid, readGpu(fields(item, `${field}.gpus.${uuid}`))]));
};
