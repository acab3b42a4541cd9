/** Words of the cards of workers on other nodes. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { GpuState, IWorker } from '../api/view';
import { formatBytes } from './quantity';
import { gpus } from './sentence';

/** Tells where its node stands: `"Other node, same switch"`. */
export function distance({ relation }: IWorker, trans: TranslationBundle): string {
  switch (relation) {
    case 'node':
      return trans.__('This node');
    case 'switch':
      return trans.__('Other node, same switch');
    case 'other':
      return trans.__('Other node, other switch');
    case 'unknown':
      return trans.__('Other node');
  }
}

const milliOf = ({ gpus }: IWorker) => gpus.reduce((sum, { milli }) => sum + milli, 0);

/** The state of a GPU that looks like the worker's; `null`: it has no GPU, and is to have none. */
export function look(worker: IWorker): GpuState | null {
  const held = milliOf(worker);
  switch (worker.stage) {
    case 'refused':
    case 'failed':
      return 'unhealthy';
    case 'ready':
      return worker.gpus.some(({ health }) => health)
        ? 'unhealthy'
        : held > worker.milli
          ? 'draining'
          : held < worker.milli
            ? 'attaching'
            : held
              ? 'attached'
              : null;
    default:
      return 'attaching';
  }
}

/** The state in a few words. */
export function stage(worker: IWorker, trans: TranslationBundle): string {
  switch (worker.stage) {
    case 'creating':
      return trans.__('Starting');
    case 'pulling':
      return trans.__('Pulling the image');
    case 'connecting':
      return trans.__('Connecting');
    case 'refused':
      return trans.__('Refused');
    case 'failed':
      return trans.__('Failed');
  }
  switch (look(worker)) {
    case 'attaching':
      return trans.__('Attaching');
    case 'draining':
      return trans.__('Giving back');
    case 'attached':
      return trans.__('Attached');
    case 'unhealthy':
      return trans.__('Not working');
    default:
      return trans.__('Kept for a while');
  }
}

/** The amount that it is to have and has not: `"1 GPU to come"`; empty: it has all. */
export function toCome(worker: IWorker, trans: TranslationBundle): string {
  const missing = worker.milli - milliOf(worker);
  return missing > 0 ? trans.__('%1 to come', gpus(missing, trans)) : '';
}

/** The bytes that went over the network, and how long an answer takes; empty: not known. */
export function traffic({ shipped, roundTrip }: IWorker, trans: TranslationBundle): string {
  return [
    ...(shipped === null ? [] : [trans.__('%1 sent there and back', formatBytes(shipped))]),
    ...(roundTrip === null ? [] : [trans.__('answers in %1 ms', (roundTrip / 1000).toFixed(1))])
  ].join(' · ');
}
