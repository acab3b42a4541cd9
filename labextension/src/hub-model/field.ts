/** Fields of limits and their values in words. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { FieldError } from '../api/check';
import { Fields } from '../hub-api/limits';
import { Day, DAYS, IBudget, IHours, readLimitFields } from '../hub-api/subject';
import { locale } from '../words/limit';
import { amount } from './amount';
import { secondsOf } from './values';

/** The names of all fields, in the order in which they are shown. */
export const FIELDS = [
  'max',
  'guaranteed',
  'weight',
  'priority',
  'models',
  'memory',
  'remote',
  'lendable',
  'hours',
  'budget',
  'idleTimeout',
  'grace'
] as const;
/** The name of a field, as in the spec. */
export type FieldName = (typeof FIELDS)[number];

/** The name of a field for people; one that this page does not know as it is. */
export function fieldLabel(name: string, trans: TranslationBundle): string {
  const labels: Readonly<Record<FieldName, string>> = {
    max: trans.__('GPUs at most'),
    guaranteed: trans.__('GPUs guaranteed'),
    weight: trans.__('Weight'),
    priority: trans.__('Highest priority'),
    models: trans.__('GPUs of a model'),
    memory: trans.__('GPU memory'),
    remote: trans.__('GPUs of other nodes'),
    lendable: trans.__('Whole GPUs are lent'),
    hours: trans.__('Hours'),
    budget: trans.__('Budget'),
    idleTimeout: trans.__('Idle timeout'),
    grace: trans.__('Grace')
  };
  return name in labels ? labels[name as FieldName] : name;
}

/** A field of a limit in words; what this page cannot read as the spec has it. */
export function fieldText(name: string, value: unknown, trans: TranslationBundle): string {
  if (value === null || value === undefined) {
    return trans.__('inherited');
  }
  try {
    const fields = { ...readLimitFields({ [name]: value }, '') } as Fields;
    return valueText(name, fields[name] ?? value, trans);
  } catch (error) {
    if (error instanceof FieldError) {
      return typeof value === 'string' ? value : JSON.stringify(value);
    }
    throw error;
  }
}

/** The value of a field, or what it comes to, in words. */
export function valueText(name: string, value: unknown, trans: TranslationBundle): string {
  switch (name) {
    case 'max':
    case 'guaranteed':
      return amount(value as string, trans);
    case 'weight':
      return String(value);
    case 'priority':
      return String(typeof value === 'number' ? value : (value as { max: number }).max);
    case 'models':
      return modelsText(value as readonly { model: string; max: string }[], trans);
    case 'memory':
      return memoryText(value as string, trans);
    case 'remote':
      return value ? trans.__('allowed') : trans.__('not allowed');
    case 'lendable':
      return value ? trans.__('while they rest') : trans.__('never');
    case 'hours':
      return hoursText(value as readonly IHours[], trans);
    case 'budget':
      return budgetText(value as IBudget, trans);
    case 'idleTimeout':
    case 'grace':
      return durationText(value as string, trans);
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** `"GPUs at most: 2 GPUs → 3 GPUs"`, for each field that differs; a limit that was made or removed says so. */
export function changeTexts(
  from: Fields | null,
  to: Fields | null,
  trans: TranslationBundle
): readonly string[] {
  const names = [...new Set([...Object.keys(from ?? {}), ...Object.keys(to ?? {})])];
  const differing = names.filter(
    name => JSON.stringify(from?.[name] ?? null) !== JSON.stringify(to?.[name] ?? null)
  );
  const texts = differing.map(name => changeText(name, from?.[name], to?.[name], trans));
  return to ? texts : [trans.__('removed'), ...texts];
}

/** `"GPUs at most: 2 GPUs → 3 GPUs"`. */
export function changeText(
  name: string,
  from: unknown,
  to: unknown,
  trans: TranslationBundle
): string {
  const [before, after] = [from, to].map(value => fieldText(name, value, trans));
  return trans.__('%1: %2 → %3', fieldLabel(name, trans), before, after);
}

/** `"Mon to Fri"`, `"every day"`, `"Mon, Wed"`. */
export function daysText(days: readonly Day[], trans: TranslationBundle): string {
  const numbers = days.map(day => DAYS.indexOf(day)).sort((a, b) => a - b);
  if (numbers.length === DAYS.length) {
    return trans.__('every day');
  }
  const [first, last] = [numbers[0], numbers[numbers.length - 1]];
  return numbers.length > 2 && last - first === numbers.length - 1
    ? trans.__('%1 to %2', dayName(DAYS[first], trans), dayName(DAYS[last], trans))
    : numbers.map(number => dayName(DAYS[number], trans)).join(', ');
}

/** `"Mon"` in the language of the page. */
export function dayName(day: Day, trans: TranslationBundle): string {
  const monday = Date.UTC(2024, 0, 1);
  const date = new Date(monday + DAYS.indexOf(day) * 24 * 3600 * 1000);
  return date.toLocaleDateString(locale(trans), { weekday: 'short', timeZone: 'UTC' });
}

/** `"Mon to Fri 08:00 to 18:00: 1 GPU"`. */
export function spanText({ days, from, to, max }: IHours, trans: TranslationBundle): string {
  return trans.__('%1 %2 to %3: %4', daysText(days, trans), from, to, amount(max, trans));
}

function hoursText(hours: readonly IHours[], trans: TranslationBundle): string {
  return hours.length ? hours.map(span => spanText(span, trans)).join('; ') : trans.__('none');
}

/** `"100 GPU-hours a month"`. */
export function budgetText({ gpuHours, window }: IBudget, trans: TranslationBundle): string {
  if (gpuHours === 'unlimited') {
    return trans.__('unlimited');
  }
  switch (window) {
    case 'Day':
      return trans.__('%1 GPU-hours a day', gpuHours);
    case 'Week':
      return trans.__('%1 GPU-hours a week', gpuHours);
    case 'Month':
      return trans.__('%1 GPU-hours a month', gpuHours);
  }
}

function modelsText(
  models: readonly { model: string; max: string }[],
  trans: TranslationBundle
): string {
  return models.map(({ model, max }) => `${model}: ${amount(max, trans)}`).join('; ');
}

function memoryText(value: string, trans: TranslationBundle): string {
  if (value === 'unlimited') {
    return trans.__('unlimited');
  }
  const found = /^([\d.]+)([A-Z]i?)$/.exec(value);
  return found ? `${found[1]} ${found[2]}B` : trans.__('%1 bytes', value);
}

/** `"1 h 30 min"`. */
function durationText(value: string, trans: TranslationBundle): string {
  if (value === 'unlimited') {
    return trans.__('unlimited');
  }
  const seconds = secondsOf(value);
  if (seconds === null) {
    return value;
  }
  const parts = [
    [Math.floor(seconds / 3600), trans.__('%1 h', Math.floor(seconds / 3600))],
    [Math.floor(seconds / 60) % 60, trans.__('%1 min', Math.floor(seconds / 60) % 60)],
    [seconds % 60, trans.__('%1 s', seconds % 60)]
  ] as const;
  const told = parts.filter(([count]) => count).map(([, text]) => text);
  return told.join(' ') || trans.__('at once');
}
