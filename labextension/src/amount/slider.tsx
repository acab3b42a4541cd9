/** The slider and its labels, and a number field beside it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useId, useRef, useState } from 'react';
import { labelled, nearest, parseGpus, positions, shortGpus } from '../words/positions';
import { formatGpus } from '../words/quantity';
import { gpus } from '../words/sentence';
import { NumberField } from './number-field';

/** Labels that fit below a slider in a narrow side bar. */
const ROOM = 10;

/** Properties of the slider; amounts in milli. */
export interface ISliderProps {
  readonly steps: readonly number[];
  readonly limit: number;
  /** The requested amount. */
  readonly value: number;
  /** The attached amount: the filled part of the track. */
  readonly attached: number;
  readonly disabled: boolean;
  readonly trans: TranslationBundle;
  /** Called when a request is made, not while the thumb moves. */
  readonly onCommit: (milli: number) => void;
}

/** A labelled range input over the steps, with a number field for everything between. */
export function GpuSlider(props: ISliderProps): React.JSX.Element {
  const { trans, limit, disabled } = props;
  const [draft, setDraft] = useState<number | null>(null);
  const id = useId();
  // The limit may end below a thumb that is being moved; if it is raised again, the thumb is where it was.
  const moved = draft === null ? null : Math.min(draft, Math.max(limit, props.value));
  const shown = moved ?? props.value;
  const commit = (milli: number) => {
    setDraft(null);
    if (milli !== props.value) {
      props.onCommit(milli);
    }
  };
  return (
    <div className="jp-gpu-Amount">
      <div className="jp-gpu-Amount-head">
        <label htmlFor={`${id}range`}>{trans.__('GPUs for this server')}</label>
        <NumberField
          value={formatGpus(shown)}
          label={trans.__('Number of GPUs')}
          wrong={trans.__('Type a number from 0 to %1, such as 2 or 0.5.', formatGpus(limit))}
          disabled={disabled}
          read={typed => parseGpus(typed, limit)}
          onCommit={commit}
        />
      </div>
      <Range {...props} id={`${id}range`} draft={moved} onDraft={setDraft} onCommit={commit} />
    </div>
  );
}

interface IRangeProps extends ISliderProps {
  readonly id: string;
  readonly draft: number | null;
  readonly onDraft: (milli: number | null) => void;
}

/**
 * The range input itself. Its positions are the steps by index, so that a fraction is as easy to
 * hit as a whole GPU. A request is made when the mouse or the key is released: `change` is emitted then for the
 * mouse and for assistive software; for keys it is emitted at every repeat, so `keyup` counts there.
 */
function Range(props: IRangeProps): React.JSX.Element {
  const { steps, limit, value, attached, draft, trans, onDraft, onCommit } = props;
  const input = useRef<HTMLInputElement>(null);
  const typing = useRef(false);
  const places = positions(steps, limit, value);
  const index = nearest(places, draft ?? value);
  const last = Math.max(1, places.length - 1);

  const finish = () => {
    typing.current = false;
    if (input.current) {
      onCommit(places[Number(input.current.value)] ?? value);
    }
  };
  useDomChange(input, () => {
    if (!typing.current) {
      finish();
    }
  });

  return (
    <div className="jp-gpu-Slider">
      <input
        ref={input}
        id={props.id}
        type="range"
        min={0}
        max={last}
        step={1}
        value={index}
        disabled={props.disabled || places.length < 2}
        aria-valuetext={trans.__('%1 of %2', formatGpus(places[index]), gpus(limit, trans))}
        data-lm-suppress-shortcuts="true"
        style={{ '--jp-gpu-filled': nearest(places, attached) / last } as React.CSSProperties}
        onChange={event => {
          // React also calls it for `change` where the browser moved the thumb itself, as a lower `max` does.
          if (event.nativeEvent.type === 'input') {
            onDraft(places[Number(event.target.value)] ?? value);
          }
        }}
        onKeyDown={event => {
          typing.current = MOVES.has(event.key);
          if (event.key === 'Escape') {
            onDraft(null);
          }
        }}
        onKeyUp={() => typing.current && finish()}
        onBlur={() => typing.current && finish()}
      />
      <Ticks places={places} index={index} />
    </div>
  );
}

/** Call `listener` at each `change` of the DOM, which has no name in React: its onChange is the DOM's `input`. */
function useDomChange(input: React.RefObject<HTMLInputElement>, listener: () => void): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const node = input.current;
    const onChange = () => latest.current();
    node?.addEventListener('change', onChange);
    return () => node?.removeEventListener('change', onChange);
  }, [input]);
}

/** Labels of some positions below the slider; the current one stands out. */
function Ticks({
  places,
  index
}: {
  readonly places: readonly number[];
  readonly index: number;
}): React.JSX.Element {
  const last = Math.max(1, places.length - 1);
  return (
    <div className="jp-gpu-Ticks" aria-hidden="true">
      {labelled(places, ROOM).map(i => (
        <span
          key={places[i]}
          className={i === index ? 'jp-mod-current' : undefined}
          style={{ '--jp-gpu-tick': i / last } as React.CSSProperties}
        >
          {shortGpus(places[i])}
        </span>
      ))}
    </div>
  );
}

/** Keys that move the thumb. */
const MOVES = new Set([
  'ArrowLeft',
  'ArrowRight',
  'ArrowUp',
  'ArrowDown',
  'PageUp',
  'PageDown',
  'Home',
  'End'
]);
