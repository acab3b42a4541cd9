/** Words of the form of a limit: what each field is for, its choices, examples and units. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IEffective } from '../hub-api/subject';
import { Choice, CHOICES } from './draft';
import { inShort } from './effective';
import { FieldName } from './field';

/** What a field is for, in a sentence or two. */
export function helpOf(name: FieldName, timeZone: string, trans: TranslationBundle): string {
  switch (name) {
    case 'max':
      return trans.__('All servers and jobs of a user together.');
    case 'guaranteed':
      return trans.__('Served before what others have beyond theirs.');
    case 'weight':
      return trans.__('Part of what is free, beside others who wait: 2 gets twice as much as 1.');
    case 'priority':
      return trans.__('From 0 to 9. A request with a higher priority counts as this one.');
    case 'models':
      return trans.__('Most GPUs whose name has these words. Each model is inherited by itself.');
    case 'memory':
      return trans.__('Of all shares of GPUs together.');
    case 'remote':
      return trans.__('Whether a server may have GPUs of nodes beside its own.');
    case 'lendable':
      return trans.__(
        'Whether preemptible pods may use whole GPUs that rest. Their owner keeps three quarters of the memory.'
      );
    case 'hours':
      return trans.__(
        'Times of the day at which another number of GPUs is the most. Time zone: %1.',
        timeZone
      );
    case 'budget':
      return trans.__(
        'Counts what a user has, busy or not. Once it is used up, only what is guaranteed is left. A week begins on Monday.'
      );
    case 'idleTimeout':
      return trans.__('How long GPUs may lie idle.');
    case 'grace':
      return trans.__('How long GPUs above a lowered limit may be kept.');
  }
}

/** The choices of a field in words; what is inherited is told. */
export function choiceNames(
  name: keyof typeof CHOICES,
  inherited: IEffective,
  trans: TranslationBundle
): Readonly<Record<Choice, string>> {
  return {
    inherit: trans.__('Inherit: %1', inShort(name, inherited, trans)),
    unlimited: trans.__('Unlimited'),
    value: valueName(name, trans),
    nothing: nothingName(name, trans)
  };
}

/** The choices of an amount of GPUs inside a list. */
export function listedNames(trans: TranslationBundle): Readonly<Record<Choice, string>> {
  return {
    inherit: '',
    unlimited: trans.__('Unlimited'),
    value: trans.__('A number'),
    nothing: trans.__('None (0)')
  };
}

/** What a person could type; empty: the choice says all. */
export function exampleOf(name: keyof typeof CHOICES): string {
  const examples: Readonly<Record<keyof typeof CHOICES, string>> = {
    max: '2',
    guaranteed: '0.5',
    weight: '2',
    priority: '5',
    memory: '40 GiB',
    idleTimeout: '4h',
    budget: '100',
    hours: '',
    remote: '',
    lendable: '',
    grace: '10m'
  };
  return examples[name];
}

/** The unit beside what is typed; empty: it is typed, too, or there is none. */
export function unitOf(name: keyof typeof CHOICES, trans: TranslationBundle): string {
  switch (name) {
    case 'max':
    case 'guaranteed':
      return trans.__('GPUs');
    case 'budget':
      return trans.__('GPU-hours');
    default:
      return '';
  }
}

function valueName(name: keyof typeof CHOICES, trans: TranslationBundle): string {
  switch (name) {
    case 'memory':
      return trans.__('An amount');
    case 'idleTimeout':
    case 'grace':
      return trans.__('A time');
    case 'hours':
      return trans.__('These hours');
    case 'remote':
      return trans.__('Allowed');
    case 'lendable':
      return trans.__('While they rest');
    default:
      return trans.__('A number');
  }
}

function nothingName(name: keyof typeof CHOICES, trans: TranslationBundle): string {
  switch (name) {
    case 'hours':
      return trans.__('No hours');
    case 'remote':
      return trans.__('Not allowed');
    case 'lendable':
      return trans.__('Never');
    case 'grace':
      return trans.__('None: at once');
    default:
      return trans.__('None (0)');
  }
}
