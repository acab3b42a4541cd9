/**
 * The recent use of time shares. Samples have totals; kept and drawn is how the time between two of them
 * was spent: the twin of `rates` in `jupyter_gpu/model/share.py`.
 */
import { ISample, IShareUse } from '../api/sample';

/** The use of a share in some time, as parts of that time: the first four together at most 1. */
export interface IRates {
  /** It ran on what it earns, an overrun included: that is paid back from it. */
  readonly guaranteed: number;
  /** It ran on its bank. */
  readonly borrowed: number;
  /** It ran on time that no other share claimed. */
  readonly idle: number;
  /** It had work and did not run. */
  readonly waiting: number;
  /** The part of `waiting` in which it had nothing left to spend. */
  readonly throttled: number;
}

/** The parts of a share's time that are drawn, as layers from the bottom up. */
export const LAYERS = ['guaranteed', 'borrowed', 'idle', 'waiting'] as const;
export type Layer = (typeof LAYERS)[number];

/** One moment of a share; `rates` of the time since the moment before, `null` if unknown. */
export interface IMoment {
  /** Seconds since the epoch. */
  readonly time: number;
  readonly use: IShareUse;
  readonly rates: IRates | null;
}

/** A change of what a share earns, in one step or many. */
export interface IAdjustment {
  /** Time of the last step. */
  readonly time: number;
  readonly from: number;
  readonly to: number;
  readonly reason: string;
}

/** Totals that never fall; the other two fall a little when the cost of a change of turns is given back. */
const MONOTONIC = ['borrowed', 'idle', 'switching', 'waited', 'throttled', 'lost'] as const;

/** The use in the `passed` microseconds between the two. Totals that fell began again. */
export function rates(before: IShareUse | null, after: IShareUse, passed: number): IRates | null {
  if (!before || passed <= 0) {
    return null;
  }
  const again = MONOTONIC.some(name => after[name] < before[name]);
  const grown = (name: 'guaranteed' | 'overrun' | (typeof MONOTONIC)[number]) =>
    Math.max(0, after[name] - (again ? 0 : before[name]));
  const own = grown('guaranteed') + grown('overrun');
  const whole = Math.max(passed, own + grown('borrowed') + grown('idle') + grown('waited'));
  return {
    guaranteed: own / whole,
    borrowed: grown('borrowed') / whole,
    idle: grown('idle') / whole,
    waiting: grown('waited') / whole,
    throttled: Math.min(grown('throttled'), grown('waited')) / whole
  };
}

/** Intervals without a sample that are a gap; the twin of `PAUSE` in `jupyter_gpu/model/history.py`. */
const GAP = 3;

/** Whether nothing is missing between the time `before` and `sample`. */
export function isJoined(before: number, sample: ISample, interval: number): boolean {
  return sample.time - before <= GAP * interval + 0.001 || (sample.since ?? Infinity) <= before;
}

/** A second, and a margin for differing clocks. */
const SECOND = 1.01;
/** Adjustments kept for each share. */
const ADJUSTMENTS = 20;
/** Seconds within which another step in the same direction for the same reason belongs to the adjustment. */
const PAUSE = 3;

/** `all` with a new step, which may extend the newest adjustment; a longer reason replaces a shorter one. */
function adjusted(all: readonly IAdjustment[], step: IAdjustment): IAdjustment[] {
  const last = all[all.length - 1] as IAdjustment | undefined;
  const way = ({ from, to }: IAdjustment) => Math.sign(to - from);
  if (last && alike(last.reason, step.reason)) {
    if (way(step) === 0) {
      return [...all.slice(0, -1), { ...last, reason: step.reason }];
    }
    if (way(step) === way(last) && step.time - last.time <= PAUSE) {
      return [...all.slice(0, -1), { ...step, from: last.from }];
    }
  }
  return [...all, step].slice(-ADJUSTMENTS);
}

/** Whether one of two reasons contains the other. */
const alike = (a: string, b: string): boolean =>
  a === b || (a !== '' && b !== '' && (a.startsWith(b) || b.startsWith(a)));

interface ITrack {
  moments: IMoment[];
  adjustments: IAdjustment[];
  /** With this many moments, older ones are joined. */
  full: number;
}

/** Number of new moments before old ones are joined again, so that adding one stays cheap. */
const SELDOM = 240;

/**
 * Seconds that may be one moment, `age` seconds after them: a chart of so long a time is coarser
 * anyway, and a page stays open for days.
 */
function span(age: number): number {
  return age <= 120 ? 0 : age <= 1200 ? 1 : 10;
}

/** `moments` with those of one span joined to the last of it; gaps stay gaps. */
export function coarser(moments: readonly IMoment[]): IMoment[] {
  const newest = moments[moments.length - 1].time;
  const found: IMoment[] = [];
  let slot = '';
  for (const moment of moments) {
    const seconds = span(newest - moment.time);
    const its = `${seconds} ${Math.floor(moment.time / seconds)}`;
    const before = found[found.length - 1] as IMoment | undefined;
    if (seconds && its === slot && before?.rates && moment.rates) {
      const start = found.length > 1 ? found[found.length - 2].time : before.time;
      found[found.length - 1] = { ...moment, rates: mean(before, moment, start) };
    } else {
      found.push(moment);
    }
    slot = its;
  }
  return found;
}

/** The use from `start` to the second of two moments. */
function mean(first: IMoment, second: IMoment, start: number): IRates {
  const part = (second.time - first.time) / (second.time - start);
  const mix = (name: keyof IRates) =>
    first.rates![name] + (second.rates![name] - first.rates![name]) * part;
  return {
    guaranteed: mix('guaranteed'),
    borrowed: mix('borrowed'),
    idle: mix('idle'),
    waiting: mix('waiting'),
    throttled: mix('throttled')
  };
}

/** Moments of every share in order of time; `capacity` are kept of each. */
export class ShareHistory {
  private readonly tracks = new Map<string, ITrack>();

  constructor(readonly capacity: number) {}

  /** Forget all. */
  clear(): void {
    this.tracks.clear();
  }

  /** Add `sample`, which is newer than all before. `interval` in seconds: after much more, a gap is shown. */
  push(sample: ISample, interval: number): void {
    for (const [uuid, use] of sample.shares ?? []) {
      let track = this.tracks.get(uuid);
      if (!track) {
        this.tracks.set(uuid, (track = { moments: [], adjustments: [], full: SELDOM }));
      }
      const last = track.moments[track.moments.length - 1] as IMoment | undefined;
      const passed = last ? sample.time - last.time : 0;
      const known = last && isJoined(last.time, sample, interval) ? last.use : null;
      const from = last?.use.effective;
      const told = use.reason !== '' && use.reason !== last?.use.reason;
      if (from !== undefined && (from !== use.effective || told)) {
        const { effective: to, reason } = use;
        track.adjustments = adjusted(track.adjustments, { time: sample.time, from, to, reason });
      }
      track.moments.push({ time: sample.time, use, rates: rates(known, use, passed * 1e6) });
      if (track.moments.length >= track.full) {
        track.moments = coarser(track.moments.slice(-this.capacity));
        track.full = track.moments.length + SELDOM;
      }
    }
    for (const [uuid, { moments }] of this.tracks) {
      // A share that has gone starts again if it comes back.
      if (
        !sample.shares?.has(uuid) &&
        !isJoined(moments[moments.length - 1].time, sample, interval)
      ) {
        this.tracks.delete(uuid);
      }
    }
  }

  /** The newest moment of the share of `uuid`, or `null`. */
  latest(uuid: string): IMoment | null {
    const moments = this.tracks.get(uuid)?.moments;
    return moments ? moments[moments.length - 1] : null;
  }

  /** Its use in the last second, or since the sample before if that was earlier; `null` if unknown. */
  rates(uuid: string): IRates | null {
    const kept = this.tracks.get(uuid)?.moments ?? [];
    const last = kept[kept.length - 1] as IMoment | undefined;
    if (!last?.rates) {
      return null;
    }
    let first = kept.length - 2;
    while (kept[first].rates && kept[first - 1].time >= last.time - SECOND) {
      first -= 1;
    }
    return rates(kept[first].use, last.use, (last.time - kept[first].time) * 1e6);
  }

  /** Whether programs work with the share of `uuid`: they have memory on its GPU, or had time of it just now. */
  isUsed(uuid: string): boolean {
    const rates = this.rates(uuid);
    const ran = rates ? rates.guaranteed + rates.borrowed + rates.idle : 0;
    return ran > 0 || (this.latest(uuid)?.use.memoryUsed ?? 0) > 0;
  }

  /** Its moments of the last `seconds` before `now`, at most `capacity`. */
  moments(uuid: string, seconds: number, now: number): readonly IMoment[] {
    const kept = this.tracks.get(uuid)?.moments.slice(-this.capacity) ?? [];
    return kept.filter(({ time }) => time >= now - seconds);
  }

  /** The adjustments of what it earns, newest first. */
  adjustments(uuid: string): readonly IAdjustment[] {
    return [...(this.tracks.get(uuid)?.adjustments ?? [])].reverse();
  }
}
