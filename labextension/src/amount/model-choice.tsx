/** The choice of a model, where this node and others have GPUs of several. */
import React, { useId } from 'react';
import { offered } from '../words/memory';
import { IChoiceProps, useChoice, wanted } from './choice';

/** A list of the models; one that code asked for in other words is there, too, while it is chosen. */
export function ModelChoice(props: IChoiceProps): React.JSX.Element | null {
  const { view, model, disabled, trans } = props;
  const id = useId();
  const [chosen, ask] = useChoice(model, (view.requested?.model ?? []).join(' / '));
  const names = new Set(offered(view).map(kind => kind.model));
  if (names.size < 2 && !chosen) {
    return null;
  }
  names.add(chosen).delete('');
  return (
    <div className="jp-gpu-Amount-head jp-gpu-Choice">
      <label htmlFor={id}>{trans.__('GPU model')}</label>
      <select
        id={id}
        className="jp-gpu-Number"
        value={chosen}
        disabled={disabled}
        data-lm-suppress-shortcuts="true"
        onChange={({ target: { value } }) =>
          ask(value, { milli: wanted(props), model: value ? [value] : null })
        }
      >
        <option value="">{trans.__('Any model')}</option>
        {[...names].map(name => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </div>
  );
}
