import { Locator } from '@playwright/test';
import { expect, LimitsPage, readSubject, setLimit, test } from './fixtures';

/** The dialog with all fields of a limit, opened by the button in the row. */
async function openLimit(limits: LimitsPage, subject: string): Promise<Locator> {
  const name = new RegExp(`^Limit of ${subject}(, for everyone)?$`);
  await limits.page.getByRole('button', { name }).click();
  const dialog = limits.page.getByRole('dialog', { name: `Limit of ${subject}` });
  await expect(dialog.getByRole('button', { name: /Save|Close/ })).toBeVisible();
  return dialog;
}

/** The fields of rita's limit, as the service has them. */
const fields = async () => (await readSubject('User', 'rita')).own?.fields ?? null;

test.afterEach(() => setLimit('rita', null));

test('hours and a budget are set, previewed, saved and undone', async ({ as }) => {
  const root = await as('root');
  const dialog = await openLimit(root, 'user rita');
  await dialog.getByRole('combobox', { name: 'Hours' }).selectOption('These hours');
  const hours = dialog.getByRole('group', { name: 'Hours 1' });
  await hours.getByRole('checkbox', { name: 'Fri' }).uncheck();
  await hours.getByRole('textbox', { name: 'Hours 1: from' }).fill('8:00');
  await hours.getByRole('combobox', { name: 'Hours 1: GPUs at most' }).selectOption('None (0)');
  await dialog.getByRole('combobox', { name: 'Budget', exact: true }).selectOption('A number');
  await dialog.getByRole('textbox', { name: 'Budget: value' }).fill('0,5');
  await dialog.getByRole('combobox', { name: 'Window of the budget' }).selectOption('a month');
  await expect(dialog).toContainText('No one loses GPUs.');
  await root.axeInBothThemes();
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  expect(await fields()).toEqual({
    hours: [{ days: ['Mon', 'Tue', 'Wed', 'Thu'], from: '08:00', to: '18:00', max: '0' }],
    budget: { gpuHours: '0.5', window: 'Month' }
  });
  await openLimit(root, 'user rita');
  await expect(dialog).toContainText('Now: Mon to Thu 08:00 to 18:00: 0 GPUs, set for user rita');
  await expect(dialog).toContainText('Now: 0.5 GPU-hours a month, set for user rita by root');
  await root.page.keyboard.press('Escape');
  await root.page.getByRole('button', { name: 'Undo' }).click();
  await expect(root.page.getByRole('button', { name: 'Undo' })).toHaveCount(0);
  expect(await fields()).toBeNull();
});

test('every other field is set, and models have their own maximum', async ({ as }) => {
  const root = await as('root');
  const dialog = await openLimit(root, 'user rita');
  const type = async (label: string, choice: string, text: string) => {
    await dialog.getByRole('combobox', { name: label, exact: true }).selectOption(choice);
    await dialog.getByRole('textbox', { name: `${label}: value`, exact: true }).fill(text);
  };
  await type('GPUs at most', 'A number', '4');
  await type('GPUs guaranteed', 'A number', '1');
  await type('Weight', 'A number', '3');
  await type('Highest priority', 'A number', '5');
  await type('GPU memory', 'An amount', '40 GiB');
  await type('Idle timeout', 'A time', '4h');
  await type('Grace', 'A time', '15m');
  await dialog.getByRole('combobox', { name: 'GPUs of other nodes' }).selectOption('Not allowed');
  await dialog.getByRole('button', { name: 'Add a model' }).click();
  await dialog.getByRole('textbox', { name: 'Model 1', exact: true }).fill('H100');
  await dialog.getByRole('textbox', { name: 'GPUs at most of model 1: value' }).fill('1');
  await dialog.getByText('As an object for kubectl').click();
  await expect(dialog.getByRole('textbox', { name: 'As an object for kubectl' })).toHaveValue(
    /models: \[\{"model":"H100","max":"1"\}\]/
  );
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  expect(await fields()).toEqual({
    max: '4',
    guaranteed: '1',
    weight: 3,
    priority: { max: 5 },
    models: [{ model: 'H100', max: '1' }],
    memory: '40Gi',
    idleTimeout: '4h',
    remote: false,
    grace: '15m'
  });
  await root.page.getByRole('button', { name: 'Changes' }).click();
  await expect(root.page.getByRole('region', { name: 'Changes' })).toContainText(
    'GPUs of a model: inherited → H100: 1 GPU'
  );
});

test('by the keyboard alone a limit is opened, corrected, saved, and the focus returns', async ({
  as
}) => {
  const root = await as('root');
  const button = root.page.getByRole('button', { name: 'Limit of user rita', exact: true });
  await button.focus();
  await root.page.keyboard.press('Enter');
  const dialog = root.page.getByRole('dialog', { name: 'Limit of user rita' });
  await dialog.getByRole('combobox', { name: 'GPUs at most', exact: true }).focus();
  await root.page.keyboard.type('A n');
  await root.page.keyboard.press('Tab');
  await root.page.keyboard.type('many');
  await root.page.keyboard.press('Enter');
  const field = dialog.getByRole('textbox', { name: 'GPUs at most: value', exact: true });
  await expect(field).toBeFocused();
  await expect(dialog).toContainText('Type a number of GPUs such as 2 or 0.5');
  await expect(field).toHaveAttribute('aria-invalid', 'true');
  await root.axeInBothThemes();
  await root.page.keyboard.press('Escape');
  const leave = root.page.getByRole('dialog', { name: 'Leave without saving?' });
  await expect(leave).toBeVisible();
  await root.page.keyboard.press('Escape');
  await expect(leave).toHaveCount(0);
  await field.focus();
  await field.selectText();
  await root.page.keyboard.type('2');
  await root.page.keyboard.press('Enter');
  await expect(dialog).toHaveCount(0);
  await expect(button).toBeFocused();
  await expect(root.row('rita')).toContainText('2 GPUs');
});

test('whoever would lose GPUs is told while the limit is edited, and asked about', async ({
  as
}) => {
  const root = await as('root');
  const dialog = await openLimit(root, 'user ann');
  await dialog.getByRole('textbox', { name: 'GPUs at most: value', exact: true }).fill('1');
  await expect(dialog).toContainText('1 user will lose 1 GPU in 10 minutes.');
  await dialog.getByRole('combobox', { name: 'Grace' }).selectOption('None: at once');
  await expect(dialog).toContainText('1 user will lose 1 GPU at once.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  const question = root.page.getByRole('dialog', { name: 'Save this change?' });
  await expect(question).toContainText('ann loses 1 GPU.');
  await question.getByRole('button', { name: 'Cancel' }).click();
  await expect(dialog).toBeVisible();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await root.page.getByRole('button', { name: 'Leave' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(root.row('ann')).toContainText('3 GPUs');
});

test('a change of somebody else meanwhile is told, and both values are shown', async ({ as }) => {
  await setLimit('rita', '2');
  const root = await as('root');
  const dialog = await openLimit(root, 'user rita');
  await dialog.getByRole('textbox', { name: 'GPUs at most: value', exact: true }).fill('1');
  await setLimit('rita', '4');
  await expect(dialog).toContainText('service limits changed this limit meanwhile.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  const question = root.page.getByRole('dialog', { name: 'Two people changed user rita' });
  await expect(question.getByRole('row', { name: 'GPUs at most' })).toContainText('1 GPU4 GPUs');
  await question.getByRole('button', { name: 'Write mine' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(root.row('rita')).toContainText('1 GPU');
});

test('a new limit is made for any name, and removed', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('button', { name: 'New limit…' }).click();
  const first = root.page.getByRole('dialog', { name: 'New limit' });
  await first.getByLabel('Limit for').selectOption('Namespace');
  await first.getByLabel('Name').fill('Batch');
  await root.page.keyboard.press('Enter');
  await expect(first).toContainText('lower-case letters');
  await root.axeInBothThemes();
  await first.getByLabel('Name').fill('batch');
  await first.getByRole('button', { name: 'Next' }).click();
  const dialog = root.page.getByRole('dialog', { name: 'Limit of namespace batch' });
  await expect(dialog).toContainText('Inherit: 1 GPU'); // the default
  await dialog
    .getByRole('combobox', { name: 'GPUs at most', exact: true })
    .selectOption('Unlimited');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  await root.search('batch');
  await expect(root.row('batch')).toContainText('unlimited');
  await openLimit(root, 'namespace batch');
  await dialog.getByRole('button', { name: 'Remove this limit…' }).click();
  await root.page
    .getByRole('dialog', { name: 'Save this change?' })
    .getByRole('button', { name: 'Save' })
    .click();
  await expect(dialog).toHaveCount(0);
  await expect(root.row('batch')).toHaveCount(0);
});

test('what a tool keeps, and the cap, cannot be saved here', async ({ as }) => {
  const root = await as('root');
  let dialog = await openLimit(root, 'the default');
  await expect(dialog).toContainText('Helm keeps this limit');
  await expect(dialog.getByRole('combobox', { name: 'GPUs at most', exact: true })).toBeDisabled();
  await expect(dialog.getByRole('button', { name: 'Save' })).toHaveCount(0);
  await root.page.keyboard.press('Escape');
  dialog = await openLimit(root, 'the cap');
  await dialog
    .getByRole('combobox', { name: 'GPUs at most', exact: true })
    .selectOption('A number');
  await dialog.getByRole('textbox', { name: 'GPUs at most: value', exact: true }).fill('6');
  await expect(dialog.getByRole('textbox', { name: 'As an object for kubectl' })).toHaveValue(
    /subject: \{"kind":"Cap"\}/
  );
  await expect(dialog.getByRole('textbox', { name: 'As an object for kubectl' })).toHaveValue(
    /max: "6"/
  );
  await expect(dialog.getByRole('button', { name: 'Save' })).toHaveCount(0);
  await root.axeInBothThemes();
});

test('who may only see limits sees all fields, and changes none', async ({ as }) => {
  const rita = await as('rita');
  const dialog = await openLimit(rita, 'user ann');
  await expect(dialog.getByRole('combobox', { name: 'GPUs at most', exact: true })).toBeDisabled();
  await expect(dialog.getByRole('button', { name: 'Save' })).toHaveCount(0);
  await dialog.getByRole('button', { name: 'Close' }).click();
  await expect(dialog).toHaveCount(0);
});
