/** The time share on a card: where its time goes, its bank, the number of neighbours, its adjustments. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useId } from 'react';
import { IShareUse } from '../api/sample';
import { IGpu } from '../api/view';
import type { History } from '../history/history';
import { Layer, LAYERS, IAdjustment, IRates } from '../history/share-history';
import { bank, facts, layerName, neighbours, part, slice, running } from '../words/share';
import { areaPath, slicePath, stretches } from './share-area';

const WIDTH = 240;
const HEIGHT = 72;
/** Stretches of time in a picture: finer ones are too narrow to show their patterns. */
const MOST = 120;
/** Adjustments shown. */
const SHOWN = 5;

/** Properties of both forms. */
export interface IShareProps {
  readonly gpu: IGpu;
  readonly history: History;
  /** Seconds of history. */
  readonly window: number;
  readonly trans: TranslationBundle;
}

/** Picture, bank and words; nothing if no share of `gpu` is known. */
export function ShareCard({ gpu, history, window, trans }: IShareProps): React.JSX.Element | null {
  const latest = history.shares.latest(gpu.uuid);
  if (!latest) {
    return null;
  }
  const { use } = latest;
  const rates = history.shares.rates(gpu.uuid);
  return (
    <div
      className="jp-gpu-Share"
      role="group"
      aria-label={trans.__('Your time share of GPU %1', gpu.index)}
    >
      <p className="jp-gpu-Card-load">
        <span>{trans.__('GPU time')}</span>
        <span>{part(rates ? running(rates) : undefined, trans)}</span>
      </p>
      <Area gpu={gpu} history={history} window={window} trans={trans} />
      <Legend rates={rates} trans={trans} />
      <p className="jp-gpu-Share-slice">{trans.__('Slice: %1', slice(use, trans))}</p>
      <Bank use={use} trans={trans} />
      <p>{neighbours(use, trans)}</p>
      <Adjustments all={history.shares.adjustments(gpu.uuid)} use={use} trans={trans} />
      <details>
        <summary>{trans.__('As a table')}</summary>
        <ShareTable gpu={gpu} history={history} window={window} trans={trans} />
      </details>
    </div>
  );
}

/** The same in words and numbers; nothing if no share is known. */
export function ShareTable({ gpu, history, trans }: IShareProps): React.JSX.Element | null {
  const latest = history.shares.latest(gpu.uuid);
  return (
    latest && (
      <table className="jp-gpu-Share-table">
        <caption>{trans.__('Your time share of GPU %1', gpu.index)}</caption>
        <tbody>
          {facts(latest.use, history.shares.rates(gpu.uuid), trans).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
    )
  );
}

function Area({ gpu, history, window, trans }: IShareProps): React.JSX.Element {
  const id = useId().replace(/:/g, '');
  const now = history.latest ?? 0;
  const frame = { now, seconds: window, width: WIDTH, height: HEIGHT };
  const all = stretches(history.shares.moments(gpu.uuid, window, now), window / MOST);
  const { use } = history.shares.latest(gpu.uuid)!;
  const rates = history.shares.rates(gpu.uuid);
  const parts = LAYERS.map(layer => `${layerName(layer, trans)} ${part(rates?.[layer], trans)}`);
  const label = trans.__('Time of GPU %1 over time, now: %2', gpu.index, parts.join(', '));
  return (
    <svg
      className="jp-gpu-Share-area"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${label}. ${trans.__('Slice: %1', slice(use, trans))}`}
    >
      <Patterns id={id} />
      {LAYERS.map(layer => (
        <path
          key={layer}
          data-layer={layer}
          d={areaPath(all, layer, frame)}
          fill={`url(#${id}-${layer})`}
        />
      ))}
      <path className="jp-gpu-Share-line" d={slicePath(all, frame)} />
    </svg>
  );
}

/** Patterns that distinguish the layers besides their colour: full, lines up, dots, lines across. */
const MARKS: Record<Layer, string> = {
  guaranteed: 'M0 0H6V6H0Z',
  borrowed: 'M0 6L6 0M-1 1L1 -1M5 7L7 5',
  idle: 'M2 3H4',
  waiting: 'M0 2H6M0 5H6'
};

function Patterns({ id }: { readonly id: string }): React.JSX.Element {
  return (
    <defs>
      {LAYERS.map(layer => (
        <pattern
          key={layer}
          id={`${id}-${layer}`}
          className="jp-gpu-Share-pattern"
          data-layer={layer}
          patternUnits="userSpaceOnUse"
          width="6"
          height="6"
        >
          <rect width="6" height="6" />
          <path d={MARKS[layer]} />
        </pattern>
      ))}
    </defs>
  );
}

interface ILegendProps {
  readonly rates: IRates | null;
  readonly trans: TranslationBundle;
}

function Legend({ rates, trans }: ILegendProps): React.JSX.Element {
  const id = useId().replace(/:/g, '');
  return (
    <ul className="jp-gpu-Share-legend">
      {LAYERS.map((layer, i) => (
        <li key={layer}>
          <svg width="14" height="12" viewBox="0 0 14 12" aria-hidden="true">
            {i === 0 && <Patterns id={id} />}
            <rect width="14" height="12" fill={`url(#${id}-${layer})`} />
          </svg>
          <span>{layerName(layer, trans)}</span>
          <span>{part(rates?.[layer], trans)}</span>
        </li>
      ))}
    </ul>
  );
}

interface IUseProps {
  readonly use: IShareUse;
  readonly trans: TranslationBundle;
}

function Bank({ use, trans }: IUseProps): React.JSX.Element {
  const words = bank(use, trans);
  const filled = use.cap ? Math.min(1, use.balance / use.cap) : 0;
  return (
    <div className="jp-gpu-Share-bank">
      <p>{trans.__('Bank: %1', words)}</p>
      <div
        role="meter"
        aria-label={trans.__('Bank: GPU time saved')}
        aria-valuemin={0}
        aria-valuemax={use.cap / 1e6}
        aria-valuenow={Math.min(use.balance, use.cap) / 1e6}
        aria-valuetext={words}
      >
        <div style={{ width: `${Math.round(1000 * filled) / 10}%` }} />
      </div>
    </div>
  );
}

interface IAdjustmentsProps extends IUseProps {
  readonly all: readonly IAdjustment[];
}

function Adjustments({ all, use, trans }: IAdjustmentsProps): React.JSX.Element | null {
  if (all.length === 0) {
    return use.reason ? <p className="jp-gpu-Share-reason">{use.reason}</p> : null;
  }
  return (
    <ol className="jp-gpu-Share-adjustments" aria-label={trans.__('Adjustments, newest first')}>
      {all.slice(0, SHOWN).map((one, i) => (
        <li key={all.length - i}>
          <time dateTime={new Date(one.time * 1000).toISOString()}>
            {new Date(one.time * 1000).toLocaleTimeString()}
          </time>{' '}
          {adjusted(one, trans)}
        </li>
      ))}
    </ol>
  );
}

/** `"25 % → 40 %: why"`. */
function adjusted({ from, to, reason }: IAdjustment, trans: TranslationBundle): string {
  const change =
    from === to ? trans.__('%1 %', to / 10) : trans.__('%1 % → %2 %', from / 10, to / 10);
  return reason ? `${change}: ${reason}` : change;
}
