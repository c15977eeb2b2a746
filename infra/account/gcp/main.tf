# What an empty project of Google Cloud needs once: a private bucket, and mails about a budget.
# The machines themselves are started by SkyPilot (machines.sh).

terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0, < 8.0"
    }
  }
}

variable "project" {
  description = "The id of the project."
  type        = string
}

variable "region" {
  description = "Where the bucket lies; the machines should be there as well."
  type        = string
  default     = "europe-west4"
}

variable "bucket" {
  description = "The name of the bucket, unique in the world: SWEEP_BUCKET without gs://."
  type        = string
}

variable "billing_account" {
  description = "The id of the billing account, for a budget that sends mail; empty: no budget."
  type        = string
  default     = ""
}

variable "monthly_budget" {
  description = "Mail is sent at half of it, at all of it, and when the forecast exceeds it. In the account's currency."
  type        = number
  default     = 50
}

variable "delete_results" {
  description = "Whether `terraform destroy` may delete a bucket with results in it."
  type        = bool
  default     = false
}

provider "google" {
  project               = var.project
  region                = var.region
  billing_project       = var.project
  user_project_override = true
}

resource "google_project_service" "needed" {
  for_each = toset([
    "billingbudgets.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "storage.googleapis.com",
  ])

  service            = each.value
  disable_on_destroy = false
}

resource "google_storage_bucket" "sweeps" {
  name                        = var.bucket
  location                    = var.region
  force_destroy               = var.delete_results
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Sweeps replace their copies all the time. By default, Google keeps each replaced copy for seven
  # days more, and these days have to be paid.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    condition {
      age = 1
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  depends_on = [google_project_service.needed]
}

resource "google_billing_budget" "monthly" {
  count           = var.billing_account == "" ? 0 : 1
  billing_account = var.billing_account
  display_name    = "sweeps"

  budget_filter {
    projects = ["projects/${var.project}"]
  }

  amount {
    specified_amount {
      units = tostring(floor(var.monthly_budget))
    }
  }

  threshold_rules {
    threshold_percent = 0.5
  }

  threshold_rules {
    threshold_percent = 1.0
  }

  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }

  depends_on = [google_project_service.needed]
}

output "SWEEP_BUCKET" {
  description = "For machines.env."
  value       = "gs://${google_storage_bucket.sweeps.name}"
}
