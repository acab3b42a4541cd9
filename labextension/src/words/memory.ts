/** Memory as an amount of its own: its bounds, what is typed, what is asked for. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IRequest } from '../api/request';
import { IGpuKind, IView } from '../api/view';
import { typedNumber } from './positions';
import { formatBytes, MILLI_PER_GPU } from './quantity';

const GIB = 2 ** 30;
/** Milli of the least share: what asks for memory alone. */
const LEAST = 1;

/** The kinds of GPUs among which a request can choose: of this node and of others. */
export const offered = ({ kinds, kindsElsewhere }: IView): readonly IGpuKind[] =>
  kinds.concat(kindsElsewhere);

/** The sizes of the GPUs that will do, in bytes; those of all, where the request names models in other words. */
function sizes(view: IView): number[] {
  const all = offered(view);
  const named = all.filter(kind => view.requested?.model.includes(kind.model));
  return (named.length ? named : all).map(kind => kind.memory);
}

/**
 * The most bytes that a share can have by its GPU and by the user's limit; `null`: memory is no amount of its own,
 * and none is asked for.
 */
export function mostMemory(view: IView): number | null {
  const any = offered(view).some(kind => kind.gate || view.requested?.memory);
  return any ? Math.min(Math.max(...sizes(view)), view.userLimit?.memory ?? Infinity) : null;
}

/** The meaning of the number in the field for a request of `milli`, its bound, and that of no number. */
export function describeMemory(
  view: IView,
  milli: number,
  most: number,
  trans: TranslationBundle
): string {
  const bound = formatBytes(most);
  const each = view.requested?.each;
  const share = each && milli % each === 0 ? each : milli % MILLI_PER_GPU;
  if (milli <= LEAST) {
    return trans.__('Up to %1, without a part of the time.', bound);
  }
  if (share % MILLI_PER_GPU === 0) {
    return trans.__('At least, of each GPU; up to %1. Empty: any.', bound);
  }
  const parts = new Set(sizes(view).map(size => formatBytes((size * share) / MILLI_PER_GPU)));
  return trans.__('Of each share, up to %1. Empty: its part, %2.', bound, [...parts].join(' / '));
}

/** The request for `bytes` beside `milli`: without GPUs for memory alone, and back. */
export function memoryRequest(bytes: number, milli: number): IRequest {
  return bytes
    ? { milli: milli || LEAST, memory: bytes }
    : { milli: milli === LEAST ? 0 : milli, memory: null };
}

/** `42949672960` → `"40"`. */
export function formatGib(bytes: number): string {
  return String(Number((bytes / GIB).toFixed(3)));
}

/** Bytes of the GiB that a person typed, 0 for nothing; `null` if that is no amount up to `most`. */
export function parseGib(typed: string, most: number): number | null {
  const bytes = typed.trim() ? Math.round(typedNumber(typed) * GIB) : 0;
  return bytes <= most ? bytes : null;
}
