/**
 * The GPUs that a notebook wants, in its metadata: `"jupyter_gpu": {"wants": {"gpus": 2, "memory": …}}`.
 * Pure. The metadata is not trusted: it is checked, and leads to no more than a button.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { FieldError, fields, integer, MAX_EXACT, number, Reader } from '../api/check';
import type { IRequest } from '../api/request';
import { IView } from '../api/view';
import { formatBytes, MILLI_PER_GPU } from '../words/quantity';
import { gpus } from '../words/sentence';

/** The key in the notebook's metadata. */
export const KEY = 'jupyter_gpu';

/** An amount of GPUs, each with so much memory; `memory` in bytes, or as a text such as "20GiB". */
export interface IWants {
  readonly milli: number;
  readonly memory: number | string | null;
}

/** The parsed metadata; with `problem`, why it cannot be read. */
export type Wants = IWants | { readonly problem: string } | null;

const MOST = 1_000_000;

const amount: Reader<number> = (value, field) => {
  const milli = number(0, MOST / MILLI_PER_GPU)(value, field) * MILLI_PER_GPU;
  const whole = Math.round(milli);
  if (whole < 1 || Math.abs(milli - whole) > 1e-6) {
    throw new FieldError(field, 'a number of GPUs above 0, such as 2 or 0.5');
  }
  return whole;
};

const memory: Reader<number | string> = (value, field) => {
  if (typeof value !== 'string') {
    return integer(1, MAX_EXACT)(value, field);
  }
  if (!/^\d{1,15}(\.\d{1,3})? ?([KMGTP]i?)?B?$/.test(value)) {
    throw new FieldError(field, 'a number of bytes, or a text such as "20GiB"');
  }
  return value;
};

/** Parse `metadata`, the value under {@link KEY}. */
export function parseWants(metadata: unknown): Wants {
  try {
    if (metadata === undefined || metadata === null) {
      return null;
    }
    return fields(metadata, KEY).maybe('wants', (value, field) => {
      const wants = fields(value, field);
      return { milli: wants.get('gpus', amount), memory: wants.maybe('memory', memory) };
    });
  } catch (error) {
    if (error instanceof FieldError) {
      return { problem: error.message };
    }
    throw error;
  }
}

/** `metadata` with these wants, or without any; other keys stay. `null`: nothing is left. */
export function withWants(metadata: unknown, wants: IWants | null): Record<string, unknown> | null {
  const known = typeof metadata === 'object' && metadata && !Array.isArray(metadata);
  const all: Record<string, unknown> = { ...(known ? metadata : {}) };
  delete all.wants;
  if (wants) {
    const { milli } = wants;
    all.wants = {
      gpus: milli / MILLI_PER_GPU,
      ...(wants.memory === null ? {} : { memory: wants.memory })
    };
  }
  return Object.keys(all).length ? all : null;
}

/** The request of a click: what is wanted, or as much of it as the limit allows; `null` if that is no more than now. */
export function offer(wants: IWants, view: IView): IRequest | null {
  const milli = Math.min(wants.milli, view.limit);
  if (milli <= view.amounts.requested) {
    return null;
  }
  return { milli, ...(wants.memory === null ? {} : { memory: wants.memory }) };
}

/** The current request, in the form of the metadata. */
export function asked(view: IView): IWants {
  return { milli: view.amounts.requested, memory: view.requested?.memory ?? null };
}

/** `"2 GPUs"`, `"2 GPUs with 20 GiB each"`. */
export function describe({ milli, memory }: IWants, trans: TranslationBundle): string {
  const of = gpus(milli, trans);
  const each = typeof memory === 'number' ? formatBytes(memory) : memory;
  return each === null ? of : trans.__('%1 with %2 each', of, each);
}
