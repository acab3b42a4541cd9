/** GPU-hours by day as bars, with a table for screen readers. */
import React from 'react';
import { DAYS, IDay, lastDays, rounded, top, total } from '../hub-model/hours';
import { usePage } from './context';

const WIDTH = 10;
const HEIGHT = 80;

/** Properties of the chart. */
export interface IHoursProps {
  /** GPU-hours by day (`2026-05-03`). */
  readonly hours: Readonly<Record<string, string>>;
}

/** The last 35 days. */
export function HoursChart({ hours }: IHoursProps): React.JSX.Element {
  const { trans } = usePage();
  const days = lastDays(hours, new Date().toISOString().slice(0, 10));
  const label = trans.__('%1 GPU-hours in the last %2 days', total(days), DAYS);
  return (
    <figure className="gpu-Hours">
      <figcaption>{label}</figcaption>
      <Bars days={days} label={label} />
      <details>
        <summary>{trans.__('As a table')}</summary>
        <table className="table table-sm w-auto">
          <thead>
            <tr>
              <th scope="col">{trans.__('Day')}</th>
              <th scope="col">{trans.__('GPU-hours')}</th>
            </tr>
          </thead>
          <tbody>
            {[...days].reverse().map(item => (
              <tr key={item.day}>
                <th scope="row">{item.day}</th>
                <td className="gpu-Number">{rounded(item.hours)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}

function Bars({ days, label }: { days: readonly IDay[]; label: string }): React.JSX.Element {
  const most = top(days);
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${WIDTH * days.length} ${HEIGHT}`}
      preserveAspectRatio="none"
    >
      {days.map(({ day, hours }, i) => {
        const height = (HEIGHT * hours) / most;
        return (
          <rect key={day} x={WIDTH * i + 1} y={HEIGHT - height} width={WIDTH - 2} height={height}>
            <title>{`${day}: ${rounded(hours)}`}</title>
          </rect>
        );
      })}
    </svg>
  );
}
