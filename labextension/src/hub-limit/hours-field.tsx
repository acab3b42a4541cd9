/** The hours at which another maximum holds: a list with a line for each. */
import React, { useRef } from 'react';
import { Day, DAYS } from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { IControl } from '../hub-common/field';
import { ISpanDraft, LISTED, MOST_ITEMS, NEW_SPAN } from '../hub-model/draft';
import { dayName } from '../hub-model/field';
import { listedNames } from '../hub-model/form-words';
import { Chosen } from './chosen';
import { ChosenField, IFormContext, LimitField } from './limit-field';
import { Remove } from './models-field';

/** The choice and, where there are hours, the list. */
export function HoursField({ form }: { readonly form: IFormContext }): React.JSX.Element {
  const { trans } = usePage();
  const add = useRef<HTMLButtonElement>(null);
  const { hours } = form.draft;
  const { choice, spans } = hours;
  const set = (next: readonly ISpanDraft[]) => form.set({ hours: { choice, spans: next } });
  const parts = ['days', 'from', 'to', 'max'];
  const errors = spans.flatMap((_, i) => parts.map(part => form.wrong(`hours.${i}.${part}`)));
  return (
    <LimitField name="hours" form={form} errors={[form.wrong('hours'), ...errors]}>
      {texts => (
        <>
          <ChosenField
            name="hours"
            form={form}
            value={{ choice, text: '' }}
            onChange={next =>
              form.set({
                hours: {
                  choice: next.choice,
                  spans: next.choice === 'value' && !spans.length ? [NEW_SPAN] : spans
                }
              })
            }
            texts={texts}
          />
          {choice === 'value' && (
            <>
              {spans.map((span, i) => (
                <Span
                  key={i}
                  at={i}
                  span={span}
                  form={form}
                  texts={texts}
                  onChange={part =>
                    set(spans.map((other, j) => (i === j ? { ...other, ...part } : other)))
                  }
                  onRemove={() => {
                    set(spans.filter((_, j) => i !== j));
                    add.current?.focus();
                  }}
                />
              ))}
              <button
                ref={add}
                type="button"
                className="btn btn-sm btn-secondary"
                disabled={form.locked || spans.length >= MOST_ITEMS}
                onClick={() => set([...spans, NEW_SPAN])}
              >
                {trans.__('Add hours')}
              </button>
            </>
          )}
        </>
      )}
    </LimitField>
  );
}

function Span(props: {
  readonly at: number;
  readonly span: ISpanDraft;
  readonly form: IFormContext;
  readonly texts: Pick<IControl, 'aria-describedby'>;
  readonly onChange: (part: Partial<ISpanDraft>) => void;
  readonly onRemove: () => void;
}): React.JSX.Element {
  const { trans } = usePage();
  const { at, span, form, texts, onChange, onRemove } = props;
  const number = at + 1;
  function clock(part: 'from' | 'to', label: string): React.JSX.Element {
    return (
      <input
        name={`hours.${at}.${part}`}
        className="form-control form-control-sm gpu-Clock"
        aria-label={label}
        placeholder="08:00"
        value={span[part]}
        maxLength={5}
        autoComplete="off"
        disabled={form.locked}
        aria-describedby={texts['aria-describedby']}
        aria-invalid={form.wrong(`hours.${at}.${part}`) ? true : undefined}
        onChange={event => onChange({ [part]: event.target.value })}
      />
    );
  }
  function toggle(day: Day, on: boolean): void {
    onChange({ days: DAYS.filter(other => (other === day ? on : span.days.includes(other))) });
  }
  return (
    <div className="gpu-Span" role="group" aria-label={trans.__('Hours %1', number)}>
      <div className="gpu-Days">
        {DAYS.map(day => (
          <label key={day} className="form-check-label">
            <input
              type="checkbox"
              className="form-check-input"
              checked={span.days.includes(day)}
              disabled={form.locked}
              aria-invalid={form.wrong(`hours.${at}.days`) ? true : undefined}
              onChange={event => toggle(day, event.target.checked)}
            />{' '}
            {dayName(day, trans)}
          </label>
        ))}
      </div>
      <div className="gpu-Line">
        {clock('from', trans.__('Hours %1: from', number))}
        <span>{trans.__('to')}</span>
        {clock('to', trans.__('Hours %1: to', number))}
        <Chosen
          path={`hours.${at}.max`}
          label={trans.__('Hours %1: GPUs at most', number)}
          choices={LISTED}
          names={listedNames(trans)}
          value={span.most}
          onChange={most => onChange({ most })}
          example="1"
          unit={trans.__('GPUs')}
          disabled={form.locked}
          texts={{
            ...texts,
            'aria-invalid': form.wrong(`hours.${at}.max`) ? true : undefined
          }}
        />
        <Remove
          label={trans.__('Remove hours %1', number)}
          disabled={form.locked}
          onClick={onRemove}
        />
      </div>
      {span.from > span.to && span.to && (
        <div className="gpu-Source">{trans.__('They end on the next day.')}</div>
      )}
    </div>
  );
}
