/** The maxima of models of GPUs: a list with a line for each. */
import React, { useRef } from 'react';
import { usePage } from '../hub-common/context';
import { IModelDraft, LISTED, MOST_ITEMS, NEW_MODEL } from '../hub-model/draft';
import { inShort } from '../hub-model/effective';
import { listedNames } from '../hub-model/form-words';
import { Chosen } from './chosen';
import { IFormContext, LimitField } from './limit-field';

const EXAMPLE = 'A100';

/** The list, with buttons to add and to remove a line. */
export function ModelsField({ form }: { readonly form: IFormContext }): React.JSX.Element {
  const { trans } = usePage();
  const add = useRef<HTMLButtonElement>(null);
  const { models } = form.draft;
  function change(at: number, part: Partial<IModelDraft>): void {
    form.set({ models: models.map((model, i) => (i === at ? { ...model, ...part } : model)) });
  }
  const errors = models.flatMap((_, i) => [
    form.wrong(`models.${i}.model`),
    form.wrong(`models.${i}.max`)
  ]);
  return (
    <LimitField name="models" form={form} errors={errors}>
      {texts => (
        <>
          {!models.length && (
            <p className="mb-1">
              {trans.__('Inherit: %1', inShort('models', form.details.inherited, trans))}
            </p>
          )}
          {models.map(({ model, most }, i) => (
            <div key={i} className="gpu-Line">
              <input
                name={`models.${i}.model`}
                className="form-control form-control-sm"
                aria-label={trans.__('Model %1', i + 1)}
                placeholder={EXAMPLE}
                value={model}
                maxLength={128}
                autoComplete="off"
                spellCheck={false}
                disabled={form.locked}
                aria-describedby={texts['aria-describedby']}
                aria-invalid={form.wrong(`models.${i}.model`) ? true : undefined}
                onChange={event => change(i, { model: event.target.value })}
              />
              <Chosen
                path={`models.${i}.max`}
                label={trans.__('GPUs at most of model %1', i + 1)}
                choices={LISTED}
                names={listedNames(trans)}
                value={most}
                onChange={value => change(i, { most: value })}
                example="1"
                unit={trans.__('GPUs')}
                disabled={form.locked}
                texts={{
                  'aria-describedby': texts['aria-describedby'],
                  'aria-invalid': form.wrong(`models.${i}.max`) ? true : undefined
                }}
              />
              <Remove
                label={trans.__('Remove model %1', i + 1)}
                disabled={form.locked}
                onClick={() => {
                  form.set({ models: models.filter((_, other) => other !== i) });
                  add.current?.focus();
                }}
              />
            </div>
          ))}
          <button
            ref={add}
            type="button"
            className="btn btn-sm btn-secondary"
            disabled={form.locked || models.length >= MOST_ITEMS}
            onClick={() => form.set({ models: [...models, NEW_MODEL] })}
          >
            {trans.__('Add a model')}
          </button>
        </>
      )}
    </LimitField>
  );
}

/** The button at the end of a line. */
export function Remove(props: {
  readonly label: string;
  readonly disabled: boolean;
  readonly onClick: () => void;
}): React.JSX.Element {
  return (
    <button
      type="button"
      className="btn btn-sm btn-secondary"
      aria-label={props.label}
      title={props.label}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <span aria-hidden="true">✕</span>
    </button>
  );
}
