"""The service over the files of a machine does what it does over an API server: the same tests, another store."""

from __future__ import annotations

import pytest

from tests.hub_service.test_live_mirror import (
    test_properties_become_limits,
)
from tests.hub_service.test_removals import (
    test_many_removals_at_once_are_all_recorded,
    test_removal_is_in_the_list_of_changes,
)
from tests.hub_service.test_rest import (
    test_changes_are_recorded_with_the_object_and_in_the_log,
    test_edits_answer_with_the_version_that_they_wrote,
    test_export_can_be_imported,
    test_import_is_whole_or_not_at_all,
    test_limit_lives,
    test_many_edits_are_one_request,
    test_removed_user_is_shown_with_its_limit,
    test_subjects_are_one_table,
    test_table_is_searched_sorted_and_paged,
    test_two_editors_do_not_overwrite_each_other,
    test_version_must_be_said,
    test_writes_of_the_same_limit_at_once_keep_one_of_them,
)

pytestmark = pytest.mark.root

__all__ = [
    "test_changes_are_recorded_with_the_object_and_in_the_log",
    "test_edits_answer_with_the_version_that_they_wrote",
    "test_export_can_be_imported",
    "test_import_is_whole_or_not_at_all",
    "test_limit_lives",
    "test_many_edits_are_one_request",
    "test_many_removals_at_once_are_all_recorded",
    "test_properties_become_limits",
    "test_removal_is_in_the_list_of_changes",
    "test_removed_user_is_shown_with_its_limit",
    "test_subjects_are_one_table",
    "test_table_is_searched_sorted_and_paged",
    "test_two_editors_do_not_overwrite_each_other",
    "test_version_must_be_said",
    "test_writes_of_the_same_limit_at_once_keep_one_of_them",
]
