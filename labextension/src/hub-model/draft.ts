/** A limit while it is edited: a choice and a text for each field, and the fields that they are. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { Fields } from '../hub-api/limits';
import { Day, DAYS, IBudget, IHours, ILimitFields, IModel, Window } from '../hub-api/subject';
import { milliOf, typedOf } from './amount';
import {
  Read,
  readClock,
  readDuration,
  readGpuHours,
  readGpus,
  readMemory,
  readModel,
  readWhole,
  Typing
} from './values';

/** What is meant by a field; `nothing` is 0, `value` the text beside the choice. */
export type Choice = 'inherit' | 'value' | 'nothing' | 'unlimited';

/** A choice, and the text that counts where the choice is `value`. */
export interface IChosen {
  readonly choice: Choice;
  readonly text: string;
}

/** The maximum of one model. */
export interface IModelDraft {
  readonly model: string;
  readonly most: IChosen;
}

/** Some hours. */
export interface ISpanDraft {
  readonly days: readonly Day[];
  readonly from: string;
  readonly to: string;
  readonly most: IChosen;
}

/** The fields that are a choice and a text. */
export type SimpleField =
  | 'max'
  | 'guaranteed'
  | 'weight'
  | 'priority'
  | 'memory'
  | 'idleTimeout'
  | 'remote'
  | 'lendable'
  | 'grace';

/** All fields as a person sees them. */
export interface IDraft extends Readonly<Record<SimpleField, IChosen>> {
  readonly models: readonly IModelDraft[];
  readonly budget: IChosen & { readonly window: Window };
  readonly hours: { readonly choice: Choice; readonly spans: readonly ISpanDraft[] };
}

/** Sentences about what is wrong, by field: `max`, `models.0.model`, `hours.1.to`. */
export type Errors = Readonly<Record<string, string>>;

/** The choices of each field, in the order in which they are offered. */
export const CHOICES: Readonly<Record<SimpleField | 'budget' | 'hours', readonly Choice[]>> = {
  max: ['inherit', 'value', 'nothing', 'unlimited'],
  guaranteed: ['inherit', 'value', 'nothing'],
  weight: ['inherit', 'value'],
  priority: ['inherit', 'value'],
  memory: ['inherit', 'value', 'nothing', 'unlimited'],
  idleTimeout: ['inherit', 'value', 'unlimited'],
  budget: ['inherit', 'value', 'unlimited'],
  hours: ['inherit', 'value', 'nothing'],
  remote: ['inherit', 'value', 'nothing'],
  lendable: ['inherit', 'value', 'nothing'],
  grace: ['inherit', 'value', 'nothing']
};
/** The choices of an amount inside a list, which inherits nothing. */
export const LISTED: readonly Choice[] = ['value', 'nothing', 'unlimited'];
/** Most models, and most hours, of one limit. */
export const MOST_ITEMS = 10;

const INHERIT: IChosen = { choice: 'inherit', text: '' };
const UNLIMITED = 'unlimited';

/** A model that is added to the list. */
export const NEW_MODEL: IModelDraft = { model: '', most: { choice: 'value', text: '' } };
/** Hours that are added to the list: working days. */
export const NEW_SPAN: ISpanDraft = {
  days: DAYS.slice(0, 5),
  from: '08:00',
  to: '18:00',
  most: { choice: 'value', text: '' }
};

/** The draft that says the same as `fields`. */
export function draftOf(fields: ILimitFields): IDraft {
  const { budget } = fields;
  return {
    max: chosen(fields.max, typedOf),
    guaranteed: chosen(fields.guaranteed, typedOf),
    weight: whole(fields.weight),
    priority: whole(fields.priority?.max ?? null),
    models: (fields.models ?? []).map(({ model, max }) => ({ model, most: chosen(max, typedOf) })),
    memory: chosen(fields.memory, typedMemory),
    idleTimeout: chosen(fields.idleTimeout, text => text),
    budget: {
      choice: !budget ? 'inherit' : budget.gpuHours === UNLIMITED ? 'unlimited' : 'value',
      text: budget && budget.gpuHours !== UNLIMITED ? String(budget.gpuHours) : '',
      window: budget?.window ?? 'Month'
    },
    hours: {
      choice: !fields.hours ? 'inherit' : fields.hours.length ? 'value' : 'nothing',
      spans: (fields.hours ?? []).map(({ max, ...span }) => ({
        ...span,
        most: chosen(max, typedOf)
      }))
    },
    remote: yesOrNo(fields.remote),
    lendable: yesOrNo(fields.lendable),
    grace: chosen(fields.grace, text => text)
  };
}

/** The fields that a draft says, `null` in one: inherited; and what is wrong, which has no value then. */
export function fieldsOf(
  draft: IDraft,
  trans: TranslationBundle
): { readonly fields: Fields; readonly errors: Errors } {
  const errors: Record<string, string> = {};
  /** The value that was read; what is wrong is kept by the name of the field. */
  function take<T>(field: string, read: Read<T>): T | null {
    if ('error' in read) {
      errors[field] = read.error;
      return null;
    }
    return read.value;
  }
  function amount<T>(
    field: string,
    { choice, text }: IChosen,
    read: Typing<T>,
    nothing: T
  ): T | string | null {
    switch (choice) {
      case 'inherit':
        return null;
      case 'unlimited':
        return UNLIMITED;
      case 'nothing':
        return nothing;
      case 'value':
        return take(field, read(text, trans));
    }
  }
  function priority(): { max: number } | null {
    const most =
      draft.priority.choice === 'inherit'
        ? null
        : take('priority', readWhole(0, 9)(draft.priority.text, trans));
    return most === null ? null : { max: most };
  }
  function models(): readonly IModel[] | null {
    const read = draft.models.map(({ model, most }, i) => ({
      model: take(`models.${i}.model`, readModel(model, trans)) ?? '',
      max: amount(`models.${i}.max`, most, readGpus, '0') ?? ''
    }));
    read.forEach(({ model }, i) => {
      if (model && read.findIndex(other => sameModel(other.model, model)) < i) {
        errors[`models.${i}.model`] = trans.__('This model is there twice.');
      }
    });
    return read.length ? [...read].sort((a, b) => (a.model < b.model ? -1 : 1)) : null;
  }
  function budget(): IBudget | null {
    const { window } = draft.budget;
    const hours = amount('budget', draft.budget, readGpuHours, 0);
    return hours === null ? null : { gpuHours: hours, window };
  }
  function hours(): readonly IHours[] | null {
    const { choice, spans } = draft.hours;
    if (choice !== 'value') {
      return choice === 'inherit' ? null : [];
    }
    if (!spans.length) {
      errors['hours'] = trans.__('Add hours, or choose that there are none.');
    }
    return spans.map((span, i) => {
      const from = take(`hours.${i}.from`, readClock(false)(span.from, trans)) ?? '';
      const to = take(`hours.${i}.to`, readClock(true)(span.to, trans)) ?? '';
      if (from && from === to) {
        errors[`hours.${i}.to`] = trans.__(
          'This is when the hours begin; the whole day is from 00:00 to 24:00.'
        );
      }
      if (!span.days.length) {
        errors[`hours.${i}.days`] = trans.__('Choose one day or more.');
      }
      const max = amount(`hours.${i}.max`, span.most, readGpus, '0') ?? '';
      return { days: DAYS.filter(day => span.days.includes(day)), from, to, max };
    });
  }

  const fields = {
    max: amount('max', draft.max, readGpus, '0'),
    guaranteed: amount('guaranteed', draft.guaranteed, readGpus, '0'),
    weight: amount('weight', draft.weight, readWhole(1, 1000), 0),
    priority: priority(),
    models: models(),
    memory: amount('memory', draft.memory, readMemory, '0'),
    idleTimeout: amount('idleTimeout', draft.idleTimeout, readDuration(60), ''),
    budget: budget(),
    hours: hours(),
    remote: isYes(draft.remote),
    lendable: isYes(draft.lendable),
    grace: amount('grace', draft.grace, readDuration(0), '0s')
  };
  const [most, sure] = [fields.max, fields.guaranteed].map(value => milliOf(value ?? ''));
  if (most !== null && sure !== null && sure > most) {
    errors['guaranteed'] = trans.__('This is more than the user may have at most.');
  }
  return { fields, errors };
}

/** The fields of `after` that differ from `before`. */
export function changed(before: ILimitFields, after: Fields): Fields {
  const was = before as unknown as Fields;
  return Object.fromEntries(
    Object.entries(after).filter(([name, value]) => !same(was[name] ?? null, value ?? null))
  );
}

/** Whether two values of a field say the same. */
export function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Whether two texts mean one model, as the scheduler compares them. */
function sameModel(one: string, other: string): boolean {
  const words = (text: string) =>
    text
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu)
      ?.join(' ');
  return words(one) === words(other);
}

function chosen(value: string | null, typed: (value: string) => string): IChosen {
  if (value === null) {
    return INHERIT;
  }
  if (value === UNLIMITED) {
    return { choice: 'unlimited', text: '' };
  }
  return value === '0' || value === '0s'
    ? { choice: 'nothing', text: '' }
    : { choice: 'value', text: typed(value) };
}

function yesOrNo(value: boolean | null): IChosen {
  return value === null ? INHERIT : { choice: value ? 'value' : 'nothing', text: '' };
}

function isYes({ choice }: IChosen): boolean | null {
  return choice === 'inherit' ? null : choice === 'value';
}

function whole(value: number | null): IChosen {
  return value === null ? INHERIT : { choice: 'value', text: String(value) };
}

/** `"40Gi"` → `"40 GiB"`. */
function typedMemory(value: string): string {
  return value.replace(/^([\d.]+)([A-Z]i?)$/, '$1 $2B');
}
