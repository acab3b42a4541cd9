/**
 * The last samples of every GPU, in ring buffers of typed arrays: adding one costs no allocation,
 * however long the page stays open.
 */
import { ILoad, ISample } from '../api/sample';
import { isJoined, ShareHistory } from './share-history';

/** Data of a chart: columns of equal length, `null` for unknown values. */
export interface ISeries {
  /** Seconds since the epoch, ascending. */
  readonly time: readonly number[];
  readonly utilisation: readonly (number | null)[];
  readonly memory: readonly (number | null)[];
}

interface IColumns {
  readonly utilisation: Float32Array;
  /** Bytes need more digits than a 32-bit float has. */
  readonly memory: Float64Array;
}

/** Samples in order of time; `capacity` of them are kept. */
export class History {
  private loads: ReadonlyMap<string, ILoad> = new Map();
  private size = 0;
  private next = 0;
  private readonly times: Float64Array;
  /** 1 if a sample follows the one before without a gap. */
  private readonly joins: Uint8Array;
  private readonly columns = new Map<string, IColumns>();

  constructor(readonly capacity: number) {
    this.times = new Float64Array(capacity);
    this.joins = new Uint8Array(capacity);
    this.shares = new ShareHistory(capacity);
  }

  /** The history of the time shares. */
  readonly shares: ShareHistory;

  /** Seconds between two samples, from the server. */
  interval = 1;

  /** Time of the newest sample, or `null`. */
  get latest(): number | null {
    return this.size ? this.times[this.slot(this.size - 1)] : null;
  }

  /** The load of `uuid` in the newest sample. */
  load(uuid: string): ILoad {
    return this.loads.get(uuid) ?? { utilisation: null, memory: null };
  }

  /** Start again from the server's history. */
  reset(interval: number, points: readonly ISample[]): void {
    this.interval = interval;
    this.size = 0;
    this.next = 0;
    this.columns.clear();
    this.shares.clear();
    this.loads = new Map();
    for (const point of points.slice(-this.capacity)) {
      this.push(point);
    }
  }

  /** Add `sample` if it is newer than the newest; whether it was added. */
  push(sample: ISample): boolean {
    const before = this.latest;
    if (before !== null && sample.time <= before) {
      return false;
    }
    const slot = this.next;
    this.next = (slot + 1) % this.capacity;
    this.size = Math.min(this.size + 1, this.capacity);
    // A point that stands for many samples is farther from the one before, which is no gap.
    this.joins[slot] = before !== null && isJoined(before, sample, this.interval) ? 1 : 0;
    this.times[slot] = sample.time;
    for (const uuid of sample.gpus.keys()) {
      if (!this.columns.has(uuid)) {
        this.columns.set(uuid, {
          utilisation: new Float32Array(this.capacity).fill(NaN),
          memory: new Float64Array(this.capacity).fill(NaN)
        });
      }
    }
    for (const [uuid, column] of this.columns) {
      const load = sample.gpus.get(uuid);
      column.utilisation[slot] = load?.utilisation ?? NaN;
      column.memory[slot] = load?.memory ?? NaN;
    }
    this.loads = sample.gpus;
    this.shares.push(sample, this.interval);
    this.forget();
    return true;
  }

  /** The samples of `uuid` of the last `seconds`; a gap in time is a `null` between its ends. */
  series(uuid: string, seconds: number): ISeries {
    const time: number[] = [];
    const utilisation: (number | null)[] = [];
    const memory: (number | null)[] = [];
    const column = this.columns.get(uuid);
    const since = (this.latest ?? 0) - seconds;
    for (let i = 0; column && i < this.size; i++) {
      const slot = this.slot(i);
      const now = this.times[slot];
      if (now < since) {
        continue;
      }
      const before = time[time.length - 1];
      if (time.length && !this.joins[slot]) {
        time.push((before + now) / 2);
        utilisation.push(null);
        memory.push(null);
      }
      time.push(now);
      utilisation.push(known(column.utilisation[slot]));
      memory.push(known(column.memory[slot]));
    }
    return { time, utilisation, memory };
  }

  /** Index of the `i`-th oldest sample. */
  private slot(i: number): number {
    return (this.next - this.size + i + this.capacity) % this.capacity;
  }

  /** Drop GPUs without samples, once a round. */
  private forget(): void {
    if (this.next !== 0) {
      return;
    }
    for (const [uuid, { utilisation, memory }] of this.columns) {
      if (utilisation.every(Number.isNaN) && memory.every(Number.isNaN)) {
        this.columns.delete(uuid);
      }
    }
  }
}

const known = (value: number): number | null => (Number.isNaN(value) ? null : value);
