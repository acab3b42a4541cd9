/** A small line chart (uPlot): one canvas, drawn when there is new data. */
import React, { useEffect, useRef } from 'react';
import type uPlot from 'uplot';
import { loadWithRetries } from '../common/retry';

const HEIGHT = 48;

/** Properties of a chart. */
export interface IChartProps {
  /** Description for screen readers. */
  readonly label: string;
  readonly time: readonly number[];
  readonly values: readonly (number | null)[];
  /** Top of the scale; the bottom is 0. */
  readonly top: number;
  /** Seconds from the left edge to the right one. */
  readonly seconds: number;
  /** Time at the right edge, in seconds since the epoch. */
  readonly now: number;
  /** Name of a CSS variable. */
  readonly colour: string;
}

/** Drawn again with each rendering, resized with its box, in the colours of the theme. */
export function Chart(props: IChartProps): React.JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const node = box.current!;
    let end: (() => void) | null = null;
    let wanted = true;
    // The chart library is most of this extension's code: it is loaded with the first chart.
    void loadWithRetries('the chart library', () => import('uplot')).then(loaded => {
      if (wanted && loaded) {
        plot.current = new loaded.default(options(node, latest), data(latest.current), node);
        end = follow(node, plot.current);
      }
    });
    return () => {
      wanted = false;
      end?.();
      plot.current = null;
    };
  }, []);

  useEffect(() => plot.current?.setData(data(props)));

  return <div ref={box} className="jp-gpu-Chart" role="img" aria-label={props.label} />;
}

/** Have `chart` follow the size of its box and the theme; the result ends that and the chart. */
function follow(node: HTMLElement, chart: uPlot): () => void {
  const sizes = new ResizeObserver(() => {
    if (node.clientWidth > 0 && node.clientWidth !== chart.width) {
      chart.setSize({ width: node.clientWidth, height: HEIGHT });
    }
  });
  sizes.observe(node);
  // JupyterLab and Notebook name the theme on the body once its style is loaded.
  const themes = new MutationObserver(() => chart.redraw(false));
  themes.observe(document.body, { attributeFilter: ['data-jp-theme-name'] });
  return () => {
    sizes.disconnect();
    themes.disconnect();
    chart.destroy();
  };
}

function data({ time, values }: IChartProps): uPlot.AlignedData {
  return [time as number[], values as (number | null)[]];
}

function options(node: HTMLElement, latest: React.RefObject<IChartProps>): uPlot.Options {
  const css = (name: string) => getComputedStyle(node).getPropertyValue(name).trim();
  const stroke = () => css(latest.current!.colour);
  return {
    width: Math.max(node.clientWidth, 1),
    height: HEIGHT,
    padding: [2, 0, 2, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: {
        time: false,
        range: () => [latest.current!.now - latest.current!.seconds, latest.current!.now]
      },
      y: { range: () => [0, latest.current!.top] }
    },
    axes: [
      { show: false },
      {
        size: 0,
        gap: 0,
        ticks: { show: false },
        values: () => [],
        splits: () => [0, 0.5, 1].map(part => part * latest.current!.top),
        grid: { stroke: () => css('--jp-border-color2'), width: 1 }
      }
    ],
    series: [
      {},
      {
        stroke,
        width: 1.5,
        fill: () => faded(stroke()),
        points: { show: false }
      }
    ]
  };
}

/** The same colour, nearly transparent, in any notation of the theme. */
function faded(colour: string): string {
  return `color-mix(in srgb, ${colour} 18%, transparent)`;
}
