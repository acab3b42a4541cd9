/** Geometry of the stacked area of a share: parts of time as paths. Pure. */
import { IMoment, IRates, Layer, LAYERS } from '../history/share-history';

/** A stretch of time (seconds) and what it was spent on. */
export interface IStretch {
  readonly from: number;
  readonly to: number;
  readonly rates: IRates;
  /** Milli that the share earned. */
  readonly slice: number;
}

/** The area. */
export interface IFrame {
  readonly now: number;
  readonly seconds: number;
  readonly width: number;
  readonly height: number;
}

/**
 * The spending of `moments`, averaged over each `least` seconds of the clock, not of the picture: the
 * drawing moves to the left and does not flicker. Gaps stay gaps.
 */
export function stretches(moments: readonly IMoment[], least: number): IStretch[] {
  const found: IStretch[] = [];
  let slot: number | null = null;
  moments.forEach((moment, i) => {
    const before = moments[i - 1] as IMoment | undefined;
    if (!before || !moment.rates) {
      slot = null;
      return;
    }
    const one = {
      from: before.time,
      to: moment.time,
      rates: moment.rates,
      slice: moment.use.effective
    };
    const its = Math.floor(moment.time / least);
    found.push(its === slot ? mean(found.pop()!, one) : one);
    slot = its;
  });
  return found;
}

function mean(a: IStretch, b: IStretch): IStretch {
  const part = (b.to - b.from) / (b.to - a.from);
  const mix = (x: number, y: number) => x + (y - x) * part;
  const rates: Record<string, number> = {};
  for (const key of [...LAYERS, 'throttled'] as const) {
    rates[key] = mix(a.rates[key], b.rates[key]);
  }
  return { from: a.from, to: b.to, rates: rates as unknown as IRates, slice: b.slice };
}

/** The outline of one layer, which stands on those below it. */
export function areaPath(all: readonly IStretch[], layer: Layer, frame: IFrame): string {
  const below = LAYERS.slice(0, LAYERS.indexOf(layer));
  const bottom = ({ rates }: IStretch) => below.reduce((sum, name) => sum + rates[name], 0);
  const top = (one: IStretch) => bottom(one) + one.rates[layer];
  return all
    .filter(one => one.rates[layer] > 0)
    .map(one => {
      const [left, right] = [x(one.from, frame), x(one.to, frame)];
      return `M${left} ${y(bottom(one), frame)}V${y(top(one), frame)}H${right}V${y(bottom(one), frame)}Z`;
    })
    .join('');
}

/** The line of what the share earns, with a step at each adjustment. */
export function slicePath(all: readonly IStretch[], frame: IFrame): string {
  return all
    .map((one, i) => {
      const start = i > 0 && all[i - 1].to === one.from ? 'L' : 'M';
      const height = y(one.slice / 1000, frame);
      return `${start}${x(one.from, frame)} ${height}H${x(one.to, frame)}`;
    })
    .join('');
}

const round = (value: number) => Math.round(value * 100) / 100;
const x = (time: number, { now, seconds, width }: IFrame) =>
  round(Math.max(0, 1 - (now - time) / seconds) * width);
const y = (part: number, { height }: IFrame) => round((1 - Math.min(1, part)) * height);
