import { expect, setLimit, test } from './fixtures';

test('a limit is explained', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('button', { name: 'Why has user ann this limit?' }).click();
  const dialog = root.page.getByRole('dialog', { name: 'The limit of user ann' });
  await expect(dialog).toContainText('ann may have 3 GPUs, set for user ann');
  await expect(dialog.getByRole('row', { name: 'user ann 3 GPUs' })).toContainText('This holds.');
  await expect(dialog.getByRole('row', { name: 'group ml 2 GPUs' })).toContainText(
    'It counts only where'
  );
  await root.axeInBothThemes();
  await root.page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
});

test('past changes are listed, also while the list is open', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('button', { name: 'Changes' }).click();
  const list = root.page.getByRole('region', { name: 'Changes' });
  await expect(list.getByRole('row').filter({ hasText: 'group ml' })).toContainText(
    'GPUs at most: inherited → 2 GPUs'
  );
  await setLimit('rita', '5');
  await expect(list.getByRole('row').filter({ hasText: 'user rita' })).toContainText('5 GPUs');
  await root.axeInBothThemes();
  await setLimit('rita', null);
});

test('limits are exported, and imported after a dry run', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('button', { name: 'Import and export' }).click();
  const waiting = root.page.waitForEvent('download');
  await root.page.getByRole('link', { name: /CSV/ }).click();
  expect((await waiting).suggestedFilename()).toBe('gpu-limits.csv');
  const document = root.page.waitForEvent('download');
  await root.page.getByRole('link', { name: /JSON/ }).click();
  expect((await document).suggestedFilename()).toBe('gpu-limits.json');
  const part = root.page.getByRole('region', { name: 'Import and export' });
  const hub = process.env.HUB_NAME;
  const choose = (text: string, kind = 'csv') =>
    part.getByLabel('A file that was exported').setInputFiles({
      name: `limits.${kind}`,
      mimeType: kind === 'csv' ? 'text/csv' : 'application/json',
      buffer: Buffer.from(text)
    });
  await choose(`kind,name,hub,max\nUser,rita,${hub},many\n`);
  await expect(part).toContainText('Some lines cannot be written');
  await expect(part.getByRole('button', { name: 'Import' })).toBeDisabled();
  await choose(`kind,name,hub,max\nUser,rita,${hub},1\n`);
  await expect(part).toContainText('1 added');
  await expect(part).toContainText('No one loses GPUs.');
  await root.axeInBothThemes();
  await part.getByRole('button', { name: 'Import' }).click();
  await expect(part).toContainText('Saved.');
  await choose(
    JSON.stringify({ limits: [{ subject: { kind: 'User', name: 'rita', hub }, max: 2 }] }),
    'json'
  );
  await expect(part).toContainText('1 changed');
  await part.getByRole('button', { name: 'Import' }).click();
  await expect(part).toContainText('Saved.');
  await root.page.getByRole('button', { name: 'Limits', exact: true }).click();
  await expect(root.row('rita')).toContainText('2 GPUs');
  await setLimit('rita', null);
});

test('GPUs are taken back with a grace, and the limit comes back', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('checkbox', { name: 'Choose user ann' }).check();
  await root.page.getByRole('button', { name: 'Take GPUs back…' }).click();
  const dialog = root.page.getByRole('dialog');
  await expect(dialog).toContainText('The chosen users have 2 GPUs now.');
  await dialog.getByLabel('GPUs that each may keep').fill('1');
  await dialog.getByLabel('Taken back').selectOption('1m');
  await root.axeInBothThemes();
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await expect(dialog).toContainText('1 user will lose 1 GPU in 1 minute.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(root.limit('user ann')).toHaveText('1 GPU');
  await root.page.getByRole('button', { name: 'Undo' }).click();
  await expect(root.limit('user ann')).toHaveText('3 GPUs');
});

test('an administrator sees the own limit, too', async ({ as }) => {
  const root = await as('root');
  await root.page.getByRole('button', { name: 'Your GPUs' }).click();
  await expect(root.page.getByRole('region', { name: 'Your GPUs' })).toContainText('In use');
});
