import { expect, test } from './fixtures';

test('a user sees the own limit, use and history, and nothing of others', async ({ as }) => {
  const ann = await as('bob');
  const own = ann.page.getByRole('region', { name: 'Your GPUs' });
  await expect(own).toContainText('set for group ml');
  await expect(own).toContainText('GPU-hours in the last 35 days');
  await expect(own.getByRole('img')).toBeVisible();
  await own.getByText('As a table').click();
  await expect(own.getByRole('table')).toBeVisible();
  await expect(ann.page.getByText('rita')).toHaveCount(0);
  await ann.axeInBothThemes();
});
