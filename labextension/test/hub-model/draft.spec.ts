import { ILimitFields, readLimitFields } from '../../src/hub-api/subject';
import { changed, draftOf, fieldsOf, IDraft, NEW_MODEL, NEW_SPAN } from '../../src/hub-model/draft';
import { fromWords } from '../../src/words/translation';

const trans = fromWords({});
/** A limit that sets every field, as the service writes it. */
const ALL: ILimitFields = {
  max: '4',
  guaranteed: '500m',
  weight: 3,
  priority: { max: 5 },
  models: [
    { model: 'A100', max: '1' },
    { model: 'H100', max: '0' }
  ],
  memory: '40Gi',
  idleTimeout: '4h',
  budget: { gpuHours: '0.5', window: 'Week' },
  hours: [{ days: ['Mon', 'Tue'], from: '08:00', to: '18:00', max: 'unlimited' }],
  remote: false,
  lendable: true,
  grace: '0s'
};
const NONE = readLimitFields({}, '');

/** What a draft that differs from `fields` says. */
function said(fields: ILimitFields, part: Partial<IDraft>) {
  return fieldsOf({ ...draftOf(fields), ...part }, trans);
}

test.each([
  ['every field', ALL],
  ['no field', NONE],
  [
    'the other words',
    {
      ...NONE,
      max: 'unlimited',
      memory: 'unlimited',
      idleTimeout: 'unlimited',
      budget: { gpuHours: 'unlimited', window: 'Month' as const },
      hours: [],
      remote: true,
      lendable: false
    }
  ]
])('a draft of %s says the same', (_, fields) => {
  const { fields: again, errors } = fieldsOf(draftOf(fields), trans);
  expect(errors).toEqual({});
  expect(again).toEqual(fields);
  expect(changed(fields, again)).toEqual({});
});

test('inherit, nothing and unlimited are three choices', () => {
  const max = (choice: 'inherit' | 'nothing' | 'unlimited') =>
    said(NONE, { max: { choice, text: '7' } }).fields.max;
  expect([max('inherit'), max('nothing'), max('unlimited')]).toEqual([null, '0', 'unlimited']);
});

test('only what differs is written', () => {
  const { fields } = said(ALL, { weight: { choice: 'inherit', text: '' } });
  expect(changed(ALL, fields)).toEqual({ weight: null });
});

test('what is wrong has a sentence at its own place', () => {
  const wrong = { choice: 'value', text: 'x' } as const;
  const span = { ...NEW_SPAN, from: '9', to: '25:00', days: [], most: wrong };
  const { errors } = said(NONE, {
    max: wrong,
    memory: wrong,
    models: [NEW_MODEL],
    hours: { choice: 'value', spans: [span] }
  });
  expect(Object.keys(errors).sort()).toEqual([
    'hours.0.days',
    'hours.0.from',
    'hours.0.max',
    'hours.0.to',
    'max',
    'memory',
    'models.0.max',
    'models.0.model'
  ]);
});

test('a guarantee above the maximum, one model twice, hours without end and an empty list are wrong', () => {
  const two = { model: 'A100-SXM4', most: { choice: 'nothing', text: '' } } as const;
  const { errors } = said(NONE, {
    max: { choice: 'value', text: '1' },
    guaranteed: { choice: 'value', text: '2' },
    models: [two, { ...two, model: 'a100 sxm4' }],
    hours: { choice: 'value', spans: [{ ...NEW_SPAN, to: '8:00' }] }
  });
  expect(errors['guaranteed']).toContain('at most');
  expect(errors['models.1.model']).toContain('twice');
  expect(errors['hours.0.to']).toContain('24:00');
  expect(said(NONE, { hours: { choice: 'value', spans: [] } }).errors).toHaveProperty('hours');
});

test('models are in the order in which the service writes them', () => {
  const model = (name: string) => ({ model: name, most: { choice: 'nothing', text: '' } as const });
  expect(said(NONE, { models: [model('H100'), model('A100')] }).fields.models).toEqual([
    { model: 'A100', max: '0' },
    { model: 'H100', max: '0' }
  ]);
});
