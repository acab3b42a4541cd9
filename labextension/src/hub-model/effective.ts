/** What a field of a limit comes to, and the limit that this comes from, in words. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IBudget, ICombined, IEffective, IFrom, IHours } from '../hub-api/subject';
import { describeSource } from '../words/limit';
import { FieldName, valueText } from './field';

/** A value and where it is from, in words. */
export interface ITold {
  readonly value: string;
  /** `"set for group ml by root on 3 May"`. */
  readonly source: string;
}

/** What a field comes to: one value, several that count together, or what holds where no limit is set. */
export function told(
  name: FieldName,
  effective: IEffective,
  trans: TranslationBundle
): readonly ITold[] {
  const found = parts(name, effective, trans);
  return found.length
    ? found
    : [{ value: unset(name, trans), source: trans.__('as no limit is set') }];
}

/** The same in a few words, without sources. */
export function inShort(name: FieldName, effective: IEffective, trans: TranslationBundle): string {
  return [...new Set(told(name, effective, trans).map(({ value }) => value))].join('; ');
}

function parts(name: FieldName, effective: IEffective, trans: TranslationBundle): readonly ITold[] {
  const text = (value: unknown, { source }: IFrom<unknown>): ITold => ({
    value: valueText(name, value, trans),
    source: describeSource(source, trans, false)
  });
  switch (name) {
    case 'models':
      return Object.entries(effective.models).map(([model, most]) =>
        text([{ model, max: most.value }], most)
      );
    case 'hours':
      return combined(effective.hours).map(item => text([item.value], item));
    case 'budget':
      return combined(effective.budget).map(item => text(item.value, item));
    default: {
      const found = effective[name];
      return found ? [text(found.value, found)] : [];
    }
  }
}

function combined<T extends IBudget | IHours>({
  alternatives,
  cap
}: ICombined<T>): readonly IFrom<T>[] {
  return [...alternatives.flat(), ...cap];
}

/** What holds where no limit sets the field: the defaults of `EffectiveLimits` in `jupyter_gpu/model/limits/effective.py`. */
function unset(name: FieldName, trans: TranslationBundle): string {
  switch (name) {
    case 'max':
    case 'memory':
    case 'idleTimeout':
    case 'budget':
      return trans.__('unlimited');
    case 'guaranteed':
      return trans.__('0 GPUs');
    case 'weight':
      return '1';
    case 'priority':
      return '9';
    case 'models':
      return trans.__('any model');
    case 'hours':
      return trans.__('none');
    case 'remote':
      return trans.__('allowed');
    case 'lendable':
      return trans.__('as pods say');
    case 'grace':
      return trans.__('10 min');
  }
}
