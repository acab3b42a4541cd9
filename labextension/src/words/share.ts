/** Words about time shares, for cards, tables and the slider in a cell. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IShareUse } from '../api/sample';
import { Layer, LAYERS, IRates } from '../history/share-history';
import { formatBytes } from './quantity';

/** Name of a layer. */
export function layerName(layer: Layer, trans: TranslationBundle): string {
  switch (layer) {
    case 'guaranteed':
      return trans.__('Guaranteed slice');
    case 'borrowed':
      return trans.__('From the bank');
    case 'idle':
      return trans.__('From idle time');
    case 'waiting':
      return trans.__('Waiting');
  }
}

/** The part of the time in which it ran. */
export const running = ({ guaranteed, borrowed, idle }: IRates) => guaranteed + borrowed + idle;

/** `"12 %"`, or `"–"` if unknown. */
export function part(value: number | undefined, trans: TranslationBundle): string {
  return value === undefined ? '–' : trans.__('%1 %', Math.round(100 * value));
}

/** The part that it earns. */
export function slice({ allocated, effective }: IShareUse, trans: TranslationBundle): string {
  return allocated === effective
    ? trans.__('%1 % of the GPU', effective / 10)
    : trans.__('%1 % of the GPU now, %2 % allocated', effective / 10, allocated / 10);
}

/** Its savings. */
export function bank({ balance, cap, expires }: IShareUse, trans: TranslationBundle): string {
  const saved = trans.__('%1 of %2', seconds(balance, trans), seconds(cap, trans));
  return expires === null
    ? saved
    : trans.__('%1, the next expires in %2', saved, seconds(expires, trans));
}

/** The number of neighbours, never their names. */
export function neighbours({ sharing, busy }: IShareUse, trans: TranslationBundle): string {
  const others =
    sharing === 0
      ? trans.__('Nobody else shares this GPU')
      : sharing === 1
        ? trans.__('Shared with 1 other')
        : trans.__('Shared with %1 others', sharing);
  return busy === null
    ? others
    : trans.__('%1, the GPU is %2 % busy', others, Math.round(100 * busy));
}

/** Microseconds as `"3.1 ms"`, `"1.2 s"`, `"3 min 20 s"`. */
export function seconds(microseconds: number, trans: TranslationBundle): string {
  const amount = microseconds / 1e6;
  if (amount > 0 && amount < 0.9995) {
    return trans.__('%1 ms', Number((amount * 1000).toPrecision(3)));
  }
  if (amount < 59.95) {
    return trans.__('%1 s', Number(amount.toPrecision(3)));
  }
  const whole = Math.round(amount);
  const minutes = Math.floor(whole / 60);
  return minutes < 60
    ? trans.__('%1 min %2 s', minutes, whole % 60)
    : trans.__('%1 h %2 min', Math.floor(minutes / 60), minutes % 60);
}

/** All known facts as rows: the current ones, and the totals. */
export function facts(
  use: IShareUse,
  rates: IRates | null,
  trans: TranslationBundle
): [string, string][] {
  const totals = {
    guaranteed: use.guaranteed + use.overrun,
    borrowed: use.borrowed,
    idle: use.idle,
    waiting: use.waited
  };
  const both = (now: number | undefined, total: number) =>
    trans.__('%1 now, %2 in all', part(now, trans), seconds(total, trans));
  const rows: [string, string][] = LAYERS.map(layer => [
    layerName(layer, trans),
    both(rates?.[layer], totals[layer])
  ]);
  rows.push([trans.__('Throttled'), both(rates?.throttled, use.throttled)]);
  rows.push([trans.__('Slice'), slice(use, trans)]);
  rows.push([trans.__('Bank'), bank(use, trans)]);
  rows.push([trans.__('Neighbours'), neighbours(use, trans)]);
  if (use.memoryUsed !== null) {
    const limit = use.memoryLimit === null ? null : formatBytes(use.memoryLimit);
    const used = formatBytes(use.memoryUsed);
    rows.push([trans.__('Memory'), limit === null ? used : trans.__('%1 of %2', used, limit)]);
  }
  if (use.reason) {
    rows.push([trans.__('Reason'), use.reason]);
  }
  return rows;
}
