import { expect, test } from './fixtures';

const ANN = 'jgpu-ann';

test('the page of one machine says machine, and changes limits of its users', async ({ as }) => {
  const root = await as('root');
  const bar = root.page.getByRole('region', { name: 'GPUs of this machine' });
  await expect(bar).toContainText('3 GPUs in this machine: 3 GPUs in use and 0 GPUs free.');
  await expect(root.row(ANN)).toContainText('the default for everyone');
  await root.type(`user ${ANN}`, '2', 'Enter');
  await expect(root.row(ANN)).toContainText('2 GPUs');
  await expect(root.row(ANN)).toContainText(`set for user ${ANN} by root`);
  await root.page.getByRole('button', { name: 'New limit' }).click();
  const dialog = root.page.getByRole('dialog', { name: 'New limit' });
  await expect(dialog.getByRole('option', { name: 'Group' })).toHaveCount(1);
  await expect(dialog.getByRole('option', { name: 'Namespace' })).toHaveCount(0);
  await expect(dialog.getByLabel('In which hubs')).toHaveCount(0);
  await expect(root.page.getByText(/cluster|kubectl|chart/)).toHaveCount(0);
  await root.axeInBothThemes();
});
