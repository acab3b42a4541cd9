import { expect, LimitsPage, setLimit, test } from './fixtures';

const status = ({ page }: LimitsPage) => page.locator('.gpu-Outcome [role=status]');

test('a limit is changed in place by the keyboard, and undone', async ({ as }) => {
  const root = await as('root');
  await root.limit('user rita').focus();
  await root.page.keyboard.press('Enter');
  await root.page.keyboard.type('0,5');
  await root.page.keyboard.press('Enter');
  await expect(status(root)).toHaveText('Saved.');
  await expect(root.row('rita')).toContainText('0.5 GPU');
  await expect(root.row('rita')).toContainText('set for user rita by root');
  await expect(root.limit('user rita')).toBeFocused();
  const undo = root.page.getByRole('button', { name: 'Undo' });
  await root.page.route(/\/limits\/bulk/, route => route.abort(), { times: 1 });
  await undo.click();
  await expect(status(root)).toHaveClass(/danger/);
  expect(root.errors.splice(0)).toEqual(['Failed to load resource: net::ERR_FAILED']);
  await undo.click();
  await expect(undo).toHaveCount(0);
  await expect(root.row('rita')).not.toContainText('set for user rita');
});

test('Esc and nonsense change nothing', async ({ as }) => {
  const root = await as('root');
  await root.type('user ann', '7', 'Escape');
  await expect(root.limit('user ann')).toBeFocused();
  await expect(root.row('ann')).toContainText('3 GPUs');
  await root.type('user ann', 'many', 'Enter');
  await expect(root.row('ann')).toContainText('Type a number of GPUs');
  await expect(root.page.getByRole('textbox', { name: 'Limit of user ann' })).toBeFocused();
});

test('users who would lose GPUs are named before anything is saved', async ({ as }) => {
  const root = await as('root');
  await root.type('user ann', '1', 'Enter');
  const dialog = root.page.getByRole('dialog', { name: 'Save this change?' });
  await expect(dialog).toContainText('1 user will lose 1 GPU in 10 minutes.');
  await expect(dialog).toContainText('ann loses 1 GPU.');
  await root.axeInBothThemes();
  await root.page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await expect(root.row('ann')).toContainText('3 GPUs');
  await root.type('user ann', '1', 'Enter');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(root.row('ann')).toContainText('1 GPU');
  await root.page.getByRole('button', { name: 'Undo' }).click();
  await expect(root.row('ann')).toContainText('3 GPUs');
});

test('a change that comes too late shows both values', async ({ as }) => {
  await setLimit('rita', '2');
  const root = await as('root');
  await root.limit('user rita').click();
  await setLimit('rita', '4');
  const field = root.page.getByRole('textbox', { name: 'Limit of user rita' });
  await field.fill('1');
  await field.press('Enter');
  const dialog = root.page.getByRole('dialog', { name: 'Two people changed user rita' });
  await expect(dialog).toContainText('service limits changed it last');
  await expect(dialog.getByRole('row', { name: 'GPUs at most' })).toContainText('1 GPU4 GPUs');
  await root.axeInBothThemes();
  await dialog.getByRole('button', { name: 'Write mine' }).click();
  await expect(root.row('rita')).toContainText('by root');
  await setLimit('rita', null);
  await expect(root.row('rita')).not.toContainText('set for user rita'); // told by the live connection
});

test('many are changed at once, and undone together', async ({ as }) => {
  const root = await as('root');
  for (const name of ['bob', 'rita']) {
    await root.page.getByRole('checkbox', { name: `Choose user ${name}` }).check();
  }
  const form = root.page.getByRole('form', { name: 'Change all chosen' });
  await expect(form).toContainText('2 chosen');
  await root.axeInBothThemes();
  await form.getByRole('textbox', { name: 'Limit' }).fill('unlimited');
  await form.getByRole('button', { name: 'Preview and save' }).click();
  const dialog = root.page.getByRole('dialog');
  await expect(dialog).toContainText('No one loses GPUs.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(status(root)).toHaveText('Saved: 2 limits.');
  await expect(root.row('bob')).toContainText('unlimited');
  await root.page.getByRole('button', { name: 'Undo' }).click();
  await expect(root.row('bob')).toContainText('set for group ml');
});

test('what a tool keeps is locked, and says so', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('combobox', { name: 'Show' }).selectOption('Default');
  await expect(root.row('everyone')).toHaveCount(1); // before that the cap is shown, too
  await expect(root.row('everyone')).toContainText('Helm keeps this limit');
  await expect(root.page.getByRole('checkbox', { name: 'Choose the default' })).toBeDisabled();
  await expect(root.limit('the default')).toHaveCount(0);
});

test('who may only see limits cannot change them', async ({ as }) => {
  const rita = await as('rita');
  await expect(rita.row('ann')).toContainText('3 GPUs');
  await expect(rita.page.getByRole('checkbox')).toHaveCount(0);
  await expect(rita.limit('user ann')).toHaveCount(0);
});
