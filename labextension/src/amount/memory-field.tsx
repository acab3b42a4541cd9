/** Memory as an amount of its own, where the node enforces it. */
import React, { useId } from 'react';
import { describeMemory, formatGib, memoryRequest, mostMemory, parseGib } from '../words/memory';
import { formatBytes } from '../words/quantity';
import { IChoiceProps, useChoice, wanted } from './choice';
import { NumberField } from './number-field';

/** A field in GiB with its bounds; while it is empty, each share has its part of the GPU's memory. */
export function MemoryField(props: IChoiceProps): React.JSX.Element | null {
  const { view, model, disabled, trans } = props;
  const id = useId();
  const recorded = view.requested?.memory ?? 0;
  const [bytes, ask] = useChoice(model, recorded);
  const most = mostMemory(view);
  if (most === null) {
    return null;
  }
  const milli = wanted(props);
  return (
    <div className="jp-gpu-Amount-head jp-gpu-Choice">
      <label htmlFor={id}>{trans.__('GPU memory, GiB')}</label>
      <NumberField
        id={id}
        value={bytes ? formatGib(bytes) : ''}
        wrong={trans.__('Type a number of GiB, up to %1, or nothing.', formatBytes(most))}
        disabled={disabled}
        describedBy={`${id}hint`}
        read={typed => parseGib(typed, most)}
        onCommit={chosen => {
          if (chosen !== recorded || (chosen && !milli)) {
            ask(chosen, memoryRequest(chosen, milli));
          }
        }}
      />
      <p id={`${id}hint`}>{describeMemory(view, milli, most, trans)}</p>
    </div>
  );
}
