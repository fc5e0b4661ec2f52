/** The owner of fields that are changed in the dashboard. */
export const FIELD_MANAGER = "knarr-dashboard";
